"""What the account routes take and give."""

from __future__ import annotations

from rest_framework import serializers

from marketplace.accounts.models import ApiKey, Invitation, Membership, Organisation, Role
from marketplace.accounts.passwords import PASSWORD_CHARACTERS_MAX
from marketplace.accounts.scopes import Scope
from marketplace.accounts.second_factor import CODE_CHARACTERS_MAX
from marketplace.foundation.serializers import StrictModelSerializer, StrictSerializer


class SignupRequest(StrictSerializer):
    email = serializers.EmailField(max_length=254)
    password = serializers.CharField(max_length=PASSWORD_CHARACTERS_MAX, trim_whitespace=False)
    name = serializers.CharField(max_length=120, default="", allow_blank=True)
    organisation = serializers.CharField(max_length=120, default="", allow_blank=True, help_text="Name of a new one.")
    invitation = serializers.CharField(max_length=120, default="", allow_blank=True)


class LoginRequest(StrictSerializer):
    email = serializers.CharField(max_length=254)
    password = serializers.CharField(max_length=PASSWORD_CHARACTERS_MAX, trim_whitespace=False)
    organisation = serializers.CharField(max_length=120, default="", allow_blank=True, help_text="Its id or name.")
    code = serializers.CharField(
        max_length=CODE_CHARACTERS_MAX,
        default="",
        allow_blank=True,
        help_text="Of the second factor, where the account has one: from the authenticator app, or a recovery code.",
    )


class OrganisationSummary(StrictModelSerializer[Organisation]):
    class Meta:
        model = Organisation
        fields = ["id", "name", "created_at"]
        read_only_fields = ["id", "created_at"]


class UserSummary(StrictSerializer):
    id = serializers.UUIDField(read_only=True)
    email = serializers.EmailField(read_only=True)
    name = serializers.CharField(read_only=True)


class MembershipSummary(StrictModelSerializer[Membership]):
    """One organisation of the user, and their role there."""

    organisation = OrganisationSummary(read_only=True)

    class Meta:
        model = Membership
        fields = ["organisation", "role", "created_at"]
        read_only_fields = fields


class SignupResponse(StrictSerializer):
    user = UserSummary(read_only=True)
    organisation = OrganisationSummary(read_only=True)
    role = serializers.ChoiceField(choices=Role.choices, read_only=True)


class SignupPending(StrictSerializer):
    """Where addresses are verified: the same for one that has an account, which gets another mail."""

    message = serializers.CharField(read_only=True, help_text="What to do next.")


class LoginResponse(StrictSerializer):
    key = serializers.CharField(read_only=True, help_text="Shown once.")
    organisation = OrganisationSummary(read_only=True)
    scopes = serializers.ListField(child=serializers.CharField(), read_only=True)


class Me(StrictSerializer):
    user = UserSummary(read_only=True)
    organisation = OrganisationSummary(read_only=True, allow_null=True)
    role = serializers.ChoiceField(choices=Role.choices, read_only=True, allow_null=True)
    scopes = serializers.ListField(child=serializers.CharField(), read_only=True)
    organisations = MembershipSummary(many=True, read_only=True)


class Member(StrictModelSerializer[Membership]):
    """One member of the organisation; only the role can be changed."""

    user = UserSummary(read_only=True)

    class Meta:
        model = Membership
        fields = ["user", "role", "created_at"]
        read_only_fields = ["created_at"]
        extra_kwargs = {"role": {"required": True}}


class InvitationSummary(StrictModelSerializer[Invitation]):
    class Meta:
        model = Invitation
        fields = ["id", "email", "role", "created_at", "expires_at", "accepted_at"]
        read_only_fields = ["id", "created_at", "expires_at", "accepted_at"]


class NewInvitation(InvitationSummary):
    """With its text, which is shown once."""

    token = serializers.CharField(read_only=True)

    class Meta(InvitationSummary.Meta):
        fields = [*InvitationSummary.Meta.fields, "token"]


class AcceptRequest(StrictSerializer):
    token = serializers.CharField(max_length=120)


class ApiKeySummary(StrictModelSerializer[ApiKey]):
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=list(Scope)), allow_empty=False)

    class Meta:
        model = ApiKey
        fields = ["id", "name", "prefix", "scopes", "created_at", "expires_at", "revoked_at", "last_used_at"]
        read_only_fields = ["id", "prefix", "created_at", "revoked_at", "last_used_at"]


class NewApiKey(ApiKeySummary):
    """With its text, which is shown once."""

    key = serializers.CharField(read_only=True)

    class Meta(ApiKeySummary.Meta):
        fields = [*ApiKeySummary.Meta.fields, "key"]
