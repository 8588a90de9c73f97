"""What can go wrong with people and keys.

SoukError
|-- SignupClosed              403  the operator's switch
|-- InvitationRefused         403  unknown, used, expired, or for another address
|-- SignupLinkRefused         403  unknown, used or expired
|-- EmailUnverified           403  nothing is done in an organisation's name before
|-- SigninRefused             401  unknown address or wrong password: the answer does not show which
|-- SigninLocked              429  too many wrong passwords: details.retry_after_seconds
|-- SecondFactorRequired      401  the password was right, and a code has to come with it
|-- SecondFactorRefused       401  wrong or used code
|-- SecondFactorMissing       403  an operator without one sets it up in the browser first
|-- WeakPassword              400  details.problems
|-- PasswordsDiffer           400  the new one was typed twice, differently
|-- ResetRefused              403  unknown, used or expired link
|-- PasswordChanged           401  since the request was let in: what it wanted would outlive the old password
|-- EmailTaken                409
|-- OrganisationRequired      400  several to choose from: details.organisations
|-- NotAMember                403
|-- ScopeMissing              403  details.scope
|-- ScopeNotYours             403  a key may not be given what its maker may not do
|-- RoleNotYours              403  nor may a member: details.scopes
|-- OrderOutdated             403  whoever ordered it may not any more: details.why
|-- OwnerNotYours             403  only an owner takes an owner's role away: details.scopes
|-- KeyTooNarrow              403  organisations are joined and made by whole users
|-- AlreadyMember             409
|-- LastOwner                 409  an organisation always keeps one
|-- TooManyKeys               409
`-- TooManyOrganisations      409  each has a quota and a turn in the queue of its own
"""

from __future__ import annotations

from marketplace.foundation.errors import BadRequest, Forbidden, SoukError


class SignupClosed(Forbidden):
    message = "This marketplace does not take new users by itself; ask its operator."
    code = "signup_closed"


class InvitationRefused(Forbidden):
    message = "This invitation is unknown, used, expired, or for another e-mail address."
    code = "invitation_refused"


class SignupLinkRefused(Forbidden):
    message = "This link is unknown, used or expired: sign in, or sign up once more."
    code = "signup_link_refused"


class EmailUnverified(Forbidden):
    message = (
        "Verify your e-mail address first: have a mail sent to it at {address}, and set a password by the link in it."
    )
    code = "email_unverified"


class SigninRefused(SoukError):
    message = "E-mail address and password do not fit. A new account is made by the link in its mail."
    code = "signin_refused"
    status = 401


class SigninLocked(SoukError):
    message = "There were too many attempts to sign in. Try again in {retry_after_seconds} s."
    code = "signin_locked"
    status = 429


class SecondFactorRequired(SoukError):
    message = (
        "This account has a second factor: give the code of your authenticator app, or a recovery code, as `code`."
    )
    code = "second_factor_required"
    status = 401


class SecondFactorRefused(SoukError):
    message = "This code is wrong, or was used before: wait for the next one, or give a recovery code."
    code = "second_factor_refused"
    status = 401


class SecondFactorMissing(Forbidden):
    message = (
        "Operators sign in with a second factor, and this account has none: set it up in the browser, at {address}."
    )
    code = "second_factor_missing"


class WeakPassword(BadRequest):
    message = "This password is too easy to guess: {problems}"
    code = "weak_password"


class PasswordsDiffer(BadRequest):
    message = "The new password was typed differently the second time: type it again."
    code = "passwords_differ"


class ResetRefused(Forbidden):
    message = "This link is unknown, used or expired: ask for a new one."
    code = "reset_refused"


class PasswordChanged(SoukError):
    message = "Your password was changed a moment ago: sign in again."
    code = "password_changed"
    status = 401


class EmailTaken(SoukError):
    message = "There is an account for this e-mail address: log in instead."
    code = "email_taken"
    status = 409


class OrganisationRequired(BadRequest):
    message = "Say which organisation you act for: {organisations}."
    code = "organisation_required"


class NotAMember(Forbidden):
    message = "You are not a member of this organisation."
    code = "not_a_member"


class ScopeMissing(Forbidden):
    message = "This needs the scope {scope}, which this key or role does not have."
    code = "scope_missing"


class ScopeNotYours(Forbidden):
    message = "A key may do no more than who makes or revokes it: {scopes}."
    code = "scope_not_yours"


class RoleNotYours(Forbidden):
    message = "Only who may do all that the role {role} may can give it: this key or role lacks {scopes}."
    code = "role_not_yours"


class OrderOutdated(Forbidden):
    message = "Nothing is launched: {why}."
    code = "order_outdated"


class OwnerNotYours(Forbidden):
    message = (
        "Only an owner can remove an owner or give them another role: this key or role lacks {scopes}. Sign in with"
        " `souk login`, or in the browser."
    )
    code = "owner_not_yours"


class KeyTooNarrow(Forbidden):
    message = (
        "This is for a key with all that your role may do, and this one lacks {scopes}: sign in with `souk login`, or"
        " in the browser."
    )
    code = "key_too_narrow"


class AlreadyMember(SoukError):
    message = "This user is a member already."
    code = "already_member"
    status = 409


class LastOwner(SoukError):
    message = "An organisation keeps at least one owner: make somebody else an owner first."
    code = "last_owner"
    status = 409


class TooManyKeys(SoukError):
    message = "You have {keys} live API keys in this organisation: revoke some."
    code = "too_many_keys"
    status = 409


class TooManyOrganisations(SoukError):
    message = "One user owns at most {organisations} organisations: leave one, or let somebody else own it."
    code = "too_many_organisations"
    status = 409
