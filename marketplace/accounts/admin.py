"""People, organisations and keys, for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import AdminPasswordChangeForm, AdminUserCreationForm
from django.core.exceptions import PermissionDenied
from django.db import models, transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from marketplace.accounts import api_keys, credentials, erasure, organisations, passwords, signin_limits
from marketplace.accounts.errors import LastOwner
from marketplace.accounts.models import ApiKey, Invitation, Membership, Organisation, SitePolicy, User
from marketplace.foundation import clock
from marketplace.foundation.admin import PlainAdmin, ReadOnlyAdmin

if TYPE_CHECKING:
    MembershipsBase = admin.TabularInline[Membership, Any]
    UsersBase = DjangoUserAdmin[User]
    NewUserBase = AdminUserCreationForm[User]
    NewPasswordBase = AdminPasswordChangeForm[User]
else:
    MembershipsBase, UsersBase, NewUserBase = admin.TabularInline, DjangoUserAdmin, AdminUserCreationForm
    NewPasswordBase = AdminPasswordChangeForm

MAY = ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")


class Memberships(MembershipsBase):
    model = Membership
    extra = 0
    autocomplete_fields = ["user", "organisation"]


class NewUserForm(NewUserBase):
    """Asks for the address in place of a user name."""

    class Meta:
        model = User
        fields = ["email"]

    def clean_email(self) -> str:
        return str(self.cleaned_data["email"]).strip().lower()


class NewPasswordForm(NewPasswordBase):
    """The user learns of it, whoever's session it was."""

    def save(self, commit: bool = True) -> User:
        with transaction.atomic():
            user: User = super().save(commit=commit)
            passwords.tell_of_operator(user)
        return user


@admin.register(User)
class UserAdmin(PlainAdmin, UsersBase):
    list_display = ["email", "name", "is_active", "is_staff", "created_at", "last_login"]
    list_filter = ["is_active", "is_staff"]
    search_fields = ["email", "name"]
    ordering = ["email"]
    readonly_fields = ["created_at", "last_login", "verified_at", "second_factor_at"]
    add_form = NewUserForm
    change_password_form = NewPasswordForm
    fieldsets = [
        (None, {"fields": ["email", "password", "name"]}),
        ("May", {"fields": MAY}),
        ("Times", {"fields": ["created_at", "last_login", "verified_at", "second_factor_at"]}),
    ]
    add_fieldsets = [(None, {"classes": ["wide"], "fields": ["email", "usable_password", "password1", "password2"]})]
    inlines = [Memberships]
    actions = ["unlock", "erase"]

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """An operator who makes an account vouches for its address; one that may not sign in keeps no key."""
        if not change:
            obj.verified_at = clock.now()
        super().save_model(request, obj, form, change)
        if change and not obj.is_active:
            credentials.revoke_all(obj.pk)

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        """Who is no superuser gives nobody rights, themselves included."""
        fields = super().get_readonly_fields(request, obj)
        return fields if getattr(request.user, "is_superuser", False) else [*fields, *MAY[1:]]

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Nor has the password or the address of an operator changed."""
        return super().has_change_permission(request, obj) and _may_touch(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_delete_permission(request, obj) and _may_touch(request, obj)

    def has_erase_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("accounts.delete_user"))

    @admin.action(description="Let sign in again after wrong passwords", permissions=["change"])
    def unlock(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        for user in queryset:
            signin_limits.unlock(user.email, codes=True)
        self.message_user(request, "They may try again.")

    @admin.action(description="Erase: for ever, money stays", permissions=["erase"])
    def erase(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        for user in queryset:
            if not self.has_delete_permission(request, user):
                raise PermissionDenied
            try:
                erasure.erase(user.pk)
            except LastOwner as error:
                self.message_user(request, f"{user}: {error.message}", messages.ERROR)
            else:
                self.message_user(request, "Erased.")


def _may_touch(request: HttpRequest, obj: User | None) -> bool:
    """Operators are superusers' alone: whoever signs in as one has all that they may."""
    return obj is None or bool(getattr(request.user, "is_superuser", False)) or not (obj.is_staff or obj.is_superuser)


@admin.register(Organisation)
class OrganisationAdmin(PlainAdmin):
    list_display = ["name", "id", "created_at"]
    search_fields = ["name", "=id"]
    inlines = [Memberships]

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False  # its jobs, leases and ledger accounts refer to it for ever


@admin.register(Membership)
class MembershipAdmin(PlainAdmin):
    list_display = ["user", "organisation", "role", "created_at"]
    list_filter = ["role"]
    search_fields = ["user__email", "organisation__name"]
    autocomplete_fields = ["user", "organisation"]


@admin.register(Invitation)
class InvitationAdmin(PlainAdmin):
    """Adding one shows its text, once."""

    list_display = ["email", "organisation", "role", "created_at", "expires_at", "accepted_at"]
    search_fields = ["email", "organisation__name"]
    autocomplete_fields = ["organisation"]
    fields = ["organisation", "email", "role"]

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        inviter = request.user if isinstance(request.user, User) else None
        made, text = organisations.invite(obj.organisation, email=obj.email, role=obj.role, invited_by=inviter)
        obj.pk = made.pk
        obj._state.adding = False
        obj.refresh_from_db()
        self.message_user(request, f"Give this invitation to {made.email}; it is shown once: {text}", messages.WARNING)


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    list_display = ["prefix", "name", "user", "organisation", "scopes", "created_at", "last_used_at", "revoked_at"]
    list_filter = ["created_at"]
    search_fields = ["=prefix", "user__email", "organisation__name"]
    list_select_related = ["user", "organisation"]
    exclude = ["key_hash"]
    actions = ["revoke"]

    @admin.action(description="Revoke", permissions=["operate"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        for key in queryset:
            api_keys.revoke(key)
        self.message_user(request, "Revoked.")


@admin.register(SitePolicy)
class SitePolicyAdmin(PlainAdmin):
    list_display = ["__str__", "signup"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return not SitePolicy.objects.exists()

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False
