"""Routes of `marketplace.accounts`, under /api/v1/."""

from __future__ import annotations

from django.urls import path

from marketplace.accounts import api, api_key_api

urlpatterns = [
    path("signup", api.SignupView.as_view(), name="signup"),
    path("login", api.LoginView.as_view(), name="login"),
    path("logout", api.LogoutView.as_view(), name="logout"),
    path("me", api.MeView.as_view(), name="me"),
    path("organisations", api.OrganisationsView.as_view(), name="organisations"),
    path("members", api.MembersView.as_view(), name="members"),
    path("members/<uuid:user_id>", api.MemberView.as_view(), name="member"),
    path("invitations", api.InvitationsView.as_view(), name="invitations"),
    path("invitations/accept", api.AcceptInvitationView.as_view(), name="accept-invitation"),
    path("invitations/<uuid:invitation_id>", api.InvitationView.as_view(), name="invitation"),
    path("api-keys", api_key_api.ApiKeysView.as_view(), name="api-keys"),
    path("api-keys/<uuid:key_id>", api_key_api.ApiKeyView.as_view(), name="api-key"),
    path("api-keys/<uuid:key_id>/rotate", api_key_api.RotateApiKeyView.as_view(), name="rotate-api-key"),
]
