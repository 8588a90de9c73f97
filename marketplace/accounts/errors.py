"""What can go wrong with people and keys.

SoukError
|-- SignupClosed              403  the operator's switch
|-- InvitationRefused         403  unknown, used, expired, or for another address
|-- SigninRefused             401  unknown address or wrong password: it does not say which
|-- WeakPassword              400  details.problems
|-- EmailTaken                409
|-- OrganisationRequired      400  several to choose from: details.organisations
|-- NotAMember                403
|-- ScopeMissing              403  details.scope
|-- ScopeNotYours             403  a key may not be given what its maker may not do
|-- AlreadyMember             409
|-- LastOwner                 409  an organisation always keeps one
`-- TooManyKeys               409
"""

from __future__ import annotations

from marketplace.foundation.errors import BadRequest, Forbidden, SoukError


class SignupClosed(Forbidden):
    """This marketplace does not take new users by itself; ask its operator."""

    code = "signup_closed"


class InvitationRefused(Forbidden):
    """This invitation is unknown, used, expired, or for another e-mail address."""

    code = "invitation_refused"


class SigninRefused(SoukError):
    """E-mail address and password do not fit."""

    code = "signin_refused"
    status = 401


class WeakPassword(BadRequest):
    """This password is too easy to guess: {problems}"""

    code = "weak_password"


class EmailTaken(SoukError):
    """There is an account for this e-mail address: log in instead."""

    code = "email_taken"
    status = 409


class OrganisationRequired(BadRequest):
    """Say which organisation you act for: {organisations}."""

    code = "organisation_required"


class NotAMember(Forbidden):
    """You are not a member of this organisation."""

    code = "not_a_member"


class ScopeMissing(Forbidden):
    """This needs the scope {scope}, which this key or role does not have."""

    code = "scope_missing"


class ScopeNotYours(Forbidden):
    """A key may do no more than who makes or revokes it: {scopes}."""

    code = "scope_not_yours"


class AlreadyMember(SoukError):
    """This user is a member already."""

    code = "already_member"
    status = 409


class LastOwner(SoukError):
    """An organisation keeps at least one owner: make somebody else an owner first."""

    code = "last_owner"
    status = 409


class TooManyKeys(SoukError):
    """You have {keys} live API keys in this organisation: revoke some."""

    code = "too_many_keys"
    status = 409
