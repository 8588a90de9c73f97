"""Keys are looked up once and in batches, and stay valid for a while without the marketplace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from hashlib import sha256
from uuid import UUID

import pytest

from jobs.gateway.accounting import key_grants as grants_module
from jobs.gateway.accounting.key_grants import KeyGrants, Unreachable
from jobs.gateway.errors import ApiError
from jobs.gateway.messages import KeyGrant
from tests.unit.jobs.gateway.stage import grant_for, key_of


class Marketplace:
    def __init__(self, *grants: KeyGrant) -> None:
        self.grants = {grant.key_hash: grant for grant in grants}
        self.asked: list[list[str]] = []
        self.is_away = False

    async def __call__(self, key_hashes: Sequence[str]) -> list[KeyGrant]:
        self.asked.append(list(key_hashes))
        await asyncio.sleep(0.01)
        if self.is_away:
            raise Unreachable("away")
        return [self.grants[key] for key in key_hashes if key in self.grants]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def grants_at(marketplace: Marketplace, clock: Clock | None = None) -> KeyGrants:
    return KeyGrants(marketplace, lambda grant: None, clock or Clock())


async def status_of(grants: KeyGrants, key: str) -> int:
    try:
        await grants.holder(key)
    except ApiError as error:
        return error.status
    return 200


def test_many_requests_of_many_keys_are_a_few_questions() -> None:
    marketplace = Marketplace(*(grant_for(f"k{name}") for name in range(20)))

    async def scenario() -> None:
        grants = grants_at(marketplace)
        await asyncio.gather(*(grants.holder(key_of(f"k{name % 20}")) for name in range(200)))
        await asyncio.gather(*(grants.holder(key_of(f"k{name}")) for name in range(20)))

    asyncio.run(scenario())
    asked = [key for batch in marketplace.asked for key in batch]
    assert len(marketplace.asked) <= 2
    assert len(asked) == len(set(asked)) == 20
    assert key_of("k1") not in str(marketplace.asked), "the key itself never leaves"


def test_a_key_that_nobody_holds_is_not_asked_about_again_and_again() -> None:
    marketplace, clock = Marketplace(), Clock()

    async def scenario() -> None:
        grants = grants_at(marketplace, clock)
        for _ in range(5):
            assert await status_of(grants, key_of("mallory")) == 401
        assert len(marketplace.asked) == 1
        clock.now += grants_module.UNKNOWN_SECONDS + 1
        marketplace.grants = {grant_for("mallory").key_hash: grant_for("mallory")}
        assert await status_of(grants, key_of("mallory")) == 200

    asyncio.run(scenario())


def test_what_does_not_look_like_a_key_is_not_asked_about() -> None:
    marketplace = Marketplace()

    async def scenario() -> None:
        grants = grants_at(marketplace)
        for key in ("", "x", "sk-souk-short", "sk-souk-" + "x" * 300, "sk-souk-" + "ä" * 30, key_of("a") + "\n"):
            assert await status_of(grants, key) == 401

    asyncio.run(scenario())
    assert marketplace.asked == []


def test_a_flood_of_wrong_keys_keeps_memory_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants_module, "UNKNOWN_MAX", 50)
    monkeypatch.setattr(grants_module, "LOOKUPS_MAX", 100)

    async def scenario() -> None:
        grants = grants_at(Marketplace())
        codes = await asyncio.gather(*(status_of(grants, key_of(f"m{name}")) for name in range(300)))
        assert set(codes) == {401, 503}
        assert codes.count(503) == 200
        assert len(grants._unknown) == 50
        assert not grants._waiting

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("refused", "status", "code"),
    [
        ("revoked", 401, "invalid_api_key"),
        ("budget_exhausted", 429, "insufficient_quota"),
        ("no_money", 429, "insufficient_quota"),
    ],
)
def test_a_grant_says_why_it_is_refused(refused: str, status: int, code: str) -> None:
    async def scenario() -> None:
        with pytest.raises(ApiError) as error:
            await grants_at(Marketplace(grant_for("alice", refused=refused))).holder(key_of("alice"))
        assert (error.value.status, error.value.code) == (status, code)

    asyncio.run(scenario())


def test_a_sync_revokes_at_once_and_an_idle_key_is_asked_about_anew() -> None:
    marketplace, clock = Marketplace(grant_for("alice"), grant_for("bob")), Clock()

    async def scenario() -> None:
        grants = grants_at(marketplace, clock)
        for name in ("alice", "bob"):
            assert await status_of(grants, key_of(name)) == 200
        assert set(grants.active()) == {grant_for("alice").key_id, grant_for("bob").key_id}
        grants.put([grant_for("alice", refused="revoked")])
        assert await status_of(grants, key_of("alice")) == 401
        clock.now += grants_module.CONFIRMED_SECONDS + 1
        del marketplace.grants[grant_for("bob").key_hash]
        assert await status_of(grants, key_of("bob")) == 401, "the marketplace knows it no more"
        assert len(grants) == 1

    asyncio.run(scenario())


def test_known_keys_go_on_while_the_marketplace_is_away_until_the_grace_is_over() -> None:
    def ending(seconds: float) -> int:
        return int((time.time() + seconds) * 1000)

    fresh = grant_for("alice", expires_at_ms=ending(-grants_module.GRACE_SECONDS / 2))
    over = grant_for("bob", key_id=UUID(int=5), expires_at_ms=ending(-grants_module.GRACE_SECONDS - 5))
    marketplace = Marketplace()
    marketplace.is_away = True

    async def scenario() -> None:
        grants = grants_at(marketplace)
        grants.restore([fresh, over])
        assert await status_of(grants, key_of("alice")) == 200
        assert await status_of(grants, key_of("bob")) == 503
        assert await status_of(grants, key_of("carol")) == 503
        asked = len(marketplace.asked)
        assert await status_of(grants, key_of("alice")) == 200
        assert len(marketplace.asked) == asked, "who is known does not wait for it again"

    asyncio.run(scenario())


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants_module, "GRANTS_MAX", 10)
    grants = grants_at(Marketplace())
    grants.put(grant_for(f"k{name}", key_id=UUID(int=name)) for name in range(30))
    assert len(grants) == 10
    assert sha256(key_of("k29").encode()).hexdigest() in {grant.key_hash for grant in grants.kept()}
