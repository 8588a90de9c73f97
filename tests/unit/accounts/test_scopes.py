"""Which role may hold which scope."""

from __future__ import annotations

import pytest

from marketplace.accounts.models import Role
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.scopes import ROLE_SCOPES, Scope


def test_every_role_has_its_row_and_an_owner_holds_every_scope() -> None:
    assert set(ROLE_SCOPES) == set(Role.values)
    assert ROLE_SCOPES[Role.OWNER] == set(Scope)


def test_only_an_owner_administers() -> None:
    assert [role for role, scopes in ROLE_SCOPES.items() if Scope.ACCOUNT_ADMIN in scopes] == [Role.OWNER]


def test_the_billing_role_moves_money_and_nothing_else() -> None:
    assert ROLE_SCOPES[Role.BILLING] == {Scope.BILLING_READ, Scope.BILLING_WRITE}
    assert Scope.BILLING_WRITE not in ROLE_SCOPES[Role.MEMBER]


def test_a_scope_that_does_not_exist_is_a_programmers_mistake() -> None:
    with pytest.raises(ValueError, match="jobs:raed"):
        HasScope("jobs:raed")
