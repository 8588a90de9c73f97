"""The addresses for signing in and out."""

from __future__ import annotations

from django.urls import path
from django.views.generic import RedirectView

from marketplace.portal.signin import password_views
from marketplace.portal.signin.second_factor_views import second_factor_page
from marketplace.portal.signin.signup_views import confirm, sign_up
from marketplace.portal.signin.views import sign_in, sign_in_to_admin, sign_out

urlpatterns = [
    path("signin", sign_in, name="signin"),
    path("signout", sign_out, name="signout"),
    path("password", password_views.change, name="password"),
    path("password/forgotten", password_views.forgotten, name="password-forgotten"),
    path("password/reset/<str:user_id>/<str:token>", password_views.reset, name="password-reset"),
    path("second-factor", second_factor_page, name="second-factor"),
    path("signup", sign_up, name="signup-page"),
    path("signup/confirm/<str:text>", confirm, name="signup-confirm"),
    # The admin's own pages know no limits.
    path("admin/password_change/", RedirectView.as_view(pattern_name="password"), name="admin-password"),
    path("admin/login/", sign_in_to_admin, name="admin-signin"),
]
