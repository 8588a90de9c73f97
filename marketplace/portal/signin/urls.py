"""The addresses for signing in and out."""

from __future__ import annotations

from django.urls import path

from marketplace.portal.signin.views import sign_in, sign_in_to_admin, sign_out

urlpatterns = [
    path("signin", sign_in, name="signin"),
    path("signout", sign_out, name="signout"),
    path("admin/login/", sign_in_to_admin, name="admin-signin"),
]
