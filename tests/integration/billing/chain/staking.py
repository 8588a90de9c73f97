"""Providers with a stake, and what is taken of it."""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID, uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.chain import stakes
from billing.chain.devchain import development
from billing.contesting import offences
from billing.contesting.offences import Victim
from billing.models import Offence, PayoutSettings, StakeSlash
from marketplace.foundation import clock
from tests.integration.billing.chain.town import Town


def stake(town: Town, amount: int, name: str = "Bob") -> None:
    town.mint(name, amount)
    town.call(name, "stake", amount)
    town.follow()


def be_paid_to(town: Town, bob: UUID, name: str = "Bob") -> None:
    """Bob's payouts go to this wallet."""
    PayoutSettings.objects.create(
        provider_id=bob, asset_id=town.asset_id, rail="chain", destination=town.key(name).address, minimum=0,
        schedule="manual",
    )  # fmt: skip


def fine(
    bob: UUID, claimed: int, asset_id: int, offence_id: UUID | None = None, victim: Victim | None = None
) -> Offence:
    return offences.record(
        bob, offence_id or uuid4(), "equivocation", {"digest": "0x1"}, claimed=claimed, victim=victim, asset_id=asset_id
    )


def settle_down(town: Town, times: int = 3) -> None:
    """As the scheduled tasks do, until nothing moves."""
    for _ in range(times):
        StakeSlash.objects.update(next_at=clock.now())
        stakes.sweep(town.contract.chain_id)
        town.follow()


def staked(town: Town, name: str = "Bob") -> int:
    owed = town.owed(AccountKind.WALLET_STAKE, name)
    assert owed == town.view("staked", town.key(name).address)
    return owed


def terms_of(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    terms = development.terms
    monkeypatch.setattr(development, "terms", lambda *given: dataclasses.replace(terms(*given), **changes))
