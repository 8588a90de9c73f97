"""Where a visitor may go: one row of links, by what their role includes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from django.urls import reverse

from marketplace.accounts.scopes import Scope
from marketplace.portal.visitors import Visitor


@dataclass(frozen=True)
class Link:
    """A page; `is_here`: it, or one below it, is shown."""

    name: str
    address: str
    is_here: bool


Allows = Callable[[Visitor | None], bool]


def _anybody(_visitor: Visitor | None) -> bool:
    return True


def _signed_in(visitor: Visitor | None) -> bool:
    return visitor is not None


def _who_may(scope: Scope) -> Allows:
    return lambda visitor: visitor is not None and visitor.may(scope)


def _operators(visitor: Visitor | None) -> bool:
    return visitor is not None and visitor.user.is_staff


PAGES: Final[tuple[tuple[str, str, Allows], ...]] = (
    ("Jobs", "jobs-page", _who_may(Scope.JOBS_READ)),
    ("Launch", "launch-page", _who_may(Scope.JOBS_WRITE)),
    ("Offers", "offers-page", _anybody),
    ("Earn", "earn-page", _who_may(Scope.PROVIDER_READ)),
    ("Chat", "chats", _signed_in),
    ("Billing", "billing-page", _who_may(Scope.BILLING_READ)),
    ("Usage", "usage-page", _who_may(Scope.BILLING_READ)),
    ("Solvency", "solvency-page", lambda visitor: visitor is None),
    ("Admin", "admin:index", _operators),
)


def links_of(visitor: Visitor | None, path: str) -> list[Link]:
    """What this visitor's pages begin with; `path` is of the page that is shown."""
    links = [(name, reverse(page)) for name, page, allows in PAGES if allows(visitor)]
    return [Link(name, address, path == address or path.startswith(f"{address}/")) for name, address in links]
