"""What a key may be allowed, and which role may hold what. Facts; permissions.py enforces them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from marketplace.accounts.models import Role


class Scope(StrEnum):
    """The strings are public: keys are asked for with them, and errors name them."""

    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    BILLING_READ = "billing:read"
    BILLING_WRITE = "billing:write"
    PROVIDER_READ = "provider:read"
    PROVIDER_WRITE = "provider:write"
    ACCOUNT_ADMIN = "account:admin"


_WORK = {Scope.JOBS_READ, Scope.JOBS_WRITE, Scope.PROVIDER_READ, Scope.PROVIDER_WRITE}
ROLE_SCOPES: Final[Mapping[str, frozenset[str]]] = {
    Role.OWNER: frozenset(Scope),
    Role.MEMBER: frozenset(_WORK | {Scope.BILLING_READ}),  # members who spend may see what was spent
    Role.BILLING: frozenset({Scope.BILLING_READ, Scope.BILLING_WRITE}),
}
