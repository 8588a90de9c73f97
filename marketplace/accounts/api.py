"""/api/v1/: signing up and in, organisations, members, invitations."""

from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID

from django.contrib.auth import logout
from django.db import transaction
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import generics, status
from rest_framework.permissions import AllowAny, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from marketplace.accounts import api_keys, organisations, second_factor, signin, signin_limits, signup
from marketplace.accounts.errors import NotAMember, SigninRefused
from marketplace.accounts.models import Invitation, Membership, Organisation, Role, User
from marketplace.accounts.permissions import ActsForWholeUser, HasScope, require_role, require_role_over
from marketplace.accounts.requester import key_of, organisation_of, scopes_of, user_of
from marketplace.accounts.scopes import Scope
from marketplace.accounts.serializers import (
    AcceptRequest,
    InvitationSummary,
    LoginRequest,
    LoginResponse,
    Me,
    Member,
    MembershipSummary,
    NewInvitation,
    OrganisationSummary,
    SignupPending,
    SignupRequest,
    SignupResponse,
)
from marketplace.foundation.addresses.client_address import client_address
from marketplace.foundation.errors import NotFound
from marketplace.foundation.idempotency import idempotent
from marketplace.foundation.throttles import ScopedThrottle

CLIENT_CHARACTERS_MAX = 120
CHECK_MAIL = "A mail is on its way to this address: open the link in it, then sign in."


class SignupView(APIView):
    """Make an account, where the operator lets people do so: at once, or by the link that the address is mailed."""

    authentication_classes = []
    permission_classes = [AllowAny]
    throttle_classes = [ScopedThrottle]
    throttle_scope = "signin"

    @extend_schema(request=SignupRequest, responses={201: SignupResponse, 202: SignupPending}, auth=[])
    @idempotent
    def post(self, request: Request) -> Response:
        asked = SignupRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        data = dict(asked.validated_data)
        data["organisation_name"] = data.pop("organisation")
        if signup.is_verified_by_mail():
            signup.request(address=client_address(request), **data)
            return Response({"message": CHECK_MAIL}, status=status.HTTP_202_ACCEPTED)
        membership = signup.sign_up(**data)
        return Response(SignupResponse(membership).data, status=status.HTTP_201_CREATED)


class LoginView(APIView):
    """A password for an API key."""

    authentication_classes = []
    permission_classes = [AllowAny]
    throttle_classes = [ScopedThrottle]
    throttle_scope = "signin"
    signed_in: User | None = None  # whose password was right in this very request, whatever its answer
    is_code_right = False

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Count the attempt before the handler's transaction, which a wrong password rolls back."""
        super().initial(request, *args, **kwargs)
        asked = LoginRequest(data=request.data)
        if request.method != "POST" or not asked.is_valid():
            return
        email, password = asked.validated_data["email"], asked.validated_data["password"]
        signin_limits.take(email, client_address(request))
        if asked.validated_data["code"]:
            with contextlib.suppress(SigninRefused):  # which the handler answers; a stranger's code counts for nothing
                signin_limits.take_code(signin.check_password(email, password).email)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Give the attempt back where its password was right, after the handler's transaction, which a refusal ends."""
        if self.signed_in is not None:
            signin_limits.forgive(self.signed_in, client_address(request))
        if self.signed_in is not None and self.is_code_right:
            signin_limits.forgive_code(self.signed_in.email)
        return super().finalize_response(request, response, *args, **kwargs)

    @extend_schema(request=LoginRequest, responses={201: LoginResponse}, auth=[])
    @idempotent
    def post(self, request: Request) -> Response:
        asked = LoginRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        data, client = asked.validated_data, request.headers.get("User-Agent", "")[:CLIENT_CHARACTERS_MAX]
        user = self.signed_in = signin.check_password(data["email"], data["password"])
        second_factor.check_sign_in(user, data["code"])
        self.is_code_right = True
        key, plaintext = signin.sign_in(user, organisation=data["organisation"], client=client)
        answer = {"key": plaintext, "organisation": key.organisation, "scopes": key.scopes}
        return Response(LoginResponse(answer).data, status=status.HTTP_201_CREATED)


class LogoutView(APIView):
    """Revoke the key of this request, or end the session."""

    permission_classes = [IsAuthenticated]

    @extend_schema(request=None, responses={204: None})
    def post(self, request: Request) -> Response:
        if key := key_of(request):
            api_keys.revoke(key)
        else:
            logout(request._request)
        return Response(status=status.HTTP_204_NO_CONTENT)


class MeView(APIView):
    """Who I am, which organisation this request acts for, and what it may do."""

    permission_classes = [IsAuthenticated]

    @extend_schema(responses=Me)
    def get(self, request: Request) -> Response:
        user = user_of(request)
        membership: Membership | None = getattr(request, "membership", None)
        answer = {
            "user": user,
            "organisation": membership.organisation if membership else None,
            "role": membership.role if membership else None,
            "scopes": sorted(scopes_of(request)),
            "organisations": user.memberships.select_related("organisation").order_by("created_at"),
        }
        return Response(Me(answer).data)


class OrganisationsView(generics.ListAPIView[Membership]):
    """The organisations that I belong to; a new one is mine."""

    permission_classes = [ActsForWholeUser]
    serializer_class = MembershipSummary
    queryset = Membership.objects.none()

    def get_queryset(self) -> QuerySet[Membership]:
        return user_of(self.request).memberships.select_related("organisation")

    @extend_schema(request=OrganisationSummary, responses={201: MembershipSummary})
    @idempotent
    def post(self, request: Request) -> Response:
        asked = OrganisationSummary(data=request.data)
        asked.is_valid(raise_exception=True)
        membership = organisations.create(user_of(request), asked.validated_data["name"])
        return Response(MembershipSummary(membership).data, status=status.HTTP_201_CREATED)


class _OfOrganisation(APIView):
    """Rows of the organisation that the request acts for; there are no others."""

    permission_classes = [HasScope(Scope.ACCOUNT_ADMIN)]

    @property
    def organisation(self) -> Organisation:
        return organisation_of(self.request)


class MembersView(_OfOrganisation, generics.ListAPIView[Membership]):
    """The members of the organisation."""

    serializer_class = Member
    queryset = Membership.objects.none()

    def get_queryset(self) -> QuerySet[Membership]:
        return self.organisation.memberships.select_related("user")


class MemberView(_OfOrganisation):
    """One member: another role, or none."""

    @extend_schema(request=Member, responses=Member)
    def patch(self, request: Request, user_id: UUID) -> Response:
        asked = Member(data=request.data)
        asked.is_valid(raise_exception=True)
        require_role(request, asked.validated_data["role"])
        with transaction.atomic():
            require_role_over(request, self._lock(user_id))
            membership = organisations.change_role(self.organisation, user_id, asked.validated_data["role"])
        return Response(Member(membership).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, user_id: UUID) -> Response:
        with transaction.atomic():
            require_role_over(request, self._lock(user_id))
            organisations.remove(self.organisation, user_id)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _lock(self, user_id: UUID) -> Membership:
        """The member, with the organisation's row locked, so that their role stays what it is until it is changed."""
        try:
            return organisations.lock_member(self.organisation, user_id)
        except NotAMember as error:
            raise NotFound from error


class InvitationsView(_OfOrganisation, generics.ListAPIView[Invitation]):
    """Who is invited."""

    serializer_class = InvitationSummary
    queryset = Invitation.objects.none()

    def get_queryset(self) -> QuerySet[Invitation]:
        return Invitation.objects.filter(organisation=self.organisation)

    @extend_schema(request=InvitationSummary, responses={201: NewInvitation})
    @idempotent
    def post(self, request: Request) -> Response:
        asked = InvitationSummary(data=request.data)
        asked.is_valid(raise_exception=True)
        require_role(request, asked.validated_data.get("role", Role.MEMBER))
        invitation, plaintext = organisations.invite(
            self.organisation, invited_by=user_of(request), **asked.validated_data
        )
        answer = {**InvitationSummary(invitation).data, "token": plaintext}
        return Response(answer, status=status.HTTP_201_CREATED)


class InvitationView(_OfOrganisation):
    """One invitation."""

    @extend_schema(responses={204: None})
    def delete(self, request: Request, invitation_id: UUID) -> Response:
        invitation = Invitation.objects.filter(organisation=self.organisation, pk=invitation_id).first()
        if invitation is None:
            raise NotFound
        organisations.withdraw(invitation)
        return Response(status=status.HTTP_204_NO_CONTENT)


class AcceptInvitationView(APIView):
    """Join the organisation that invited me."""

    permission_classes = [ActsForWholeUser]

    @extend_schema(request=AcceptRequest, responses={201: MembershipSummary})
    @idempotent
    def post(self, request: Request) -> Response:
        asked = AcceptRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        membership = organisations.accept(user_of(request), asked.validated_data["token"])
        return Response(MembershipSummary(membership).data, status=status.HTTP_201_CREATED)
