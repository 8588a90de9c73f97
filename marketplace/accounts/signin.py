"""A password for an API key: how the command line and other clients sign in."""

from __future__ import annotations

from django.contrib.auth import authenticate

from marketplace.accounts import api_keys
from marketplace.accounts.errors import NotAMember, OrganisationRequired, SigninRefused
from marketplace.accounts.models import ApiKey, Membership, User
from marketplace.accounts.scopes import ROLE_SCOPES


def sign_in(user: User, *, organisation: str = "", client: str = "") -> tuple[ApiKey, str]:
    """A key named after the client, with all that the user's role may do, and its text.

    `user` is what `check_password` returned: where the password was set anew meanwhile, no key is made.
    `organisation` is an id or a name; a user with only one may leave it out.
    """
    membership = _choose(user, organisation)
    return api_keys.issue(
        user=user,
        organisation=membership.organisation,
        name=client or "unnamed client",
        scopes=ROLE_SCOPES[membership.role],
    )


def check_password(email: str, password: str) -> User:
    """The user of this address and password; raises SigninRefused, as slowly for nobody's address.

    The caller has counted the attempt by `signin_limits.take`.
    """
    user = authenticate(username=email.strip().lower(), password=password)
    if not isinstance(user, User):
        raise SigninRefused
    return user


def _choose(user: User, wanted: str) -> Membership:
    memberships = list(Membership.objects.filter(user=user).select_related("organisation"))
    if wanted:
        memberships = [one for one in memberships if wanted in {str(one.organisation_id), one.organisation.name}]
    if not memberships:
        raise NotAMember
    if len(memberships) > 1:
        names = [f"{one.organisation.name} ({one.organisation_id})" for one in memberships]
        raise OrganisationRequired(organisations=", ".join(names))
    return memberships[0]
