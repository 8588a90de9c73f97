"""Where the money goes: chosen once, and changed with a delay that defeats a stolen session."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from eth_account import Account as EthereumAccount
from eth_account.messages import encode_defunct

from billing.errors import AmountInvalid
from billing.models import Asset, Payout, PayoutSettings
from billing.payouts import notifying, paying, preferences
from billing.payouts.calendar import next_due
from billing.payouts.errors import DestinationRefused, RailOff, WalletNotSigned
from billing.payouts.preferences import DesiredSettings, wallet_text
from billing.rails import registry
from billing.rails.errors import RailUnknown
from billing.rails.fake.payout_rail import FakePayouts
from billing.rails.loopback import FakeMoneyRefused
from marketplace.foundation import clock
from marketplace.foundation.models import Event
from tests.integration.billing.payouts.scenes import choose, earn, usd

pytestmark = pytest.mark.django_db


def test_the_first_destination_is_used_at_once_and_a_changed_one_days_later(bob: UUID, settings: Any) -> None:
    choose(bob, "fake:bob", schedule="manual")
    row = choose(bob, "fake:mallory", schedule="manual")
    assert (row.destination, row.next_destination) == ("fake:bob", "fake:mallory")
    assert row.next_from > clock.now() + timedelta(hours=71)
    earn(bob)
    assert paying.pay_now(bob, usd(), actor="mallory").destination == "fake:bob"
    events = Event.objects.filter(subject_kind=notifying.EVENT_KIND, data__provider_id=str(bob)).order_by("id")
    assert [event.data["destination"] for event in events] == ["fake:bob", "fake:mallory"]
    assert [event.reason for event in events] == ["chosen", "changed"]


def test_once_its_time_is_over_the_changed_destination_is_used(bob: UUID) -> None:
    choose(bob, "fake:bob", schedule="manual")
    row = choose(bob, "fake:bobs-new-bank", schedule="manual")
    PayoutSettings.objects.filter(pk=row.pk).update(next_from=clock.now())
    earn(bob)
    assert paying.pay_now(bob, usd(), actor="bob").destination == "fake:bobs-new-bank"
    row.refresh_from_db()
    assert (row.destination, row.next_destination, row.next_from) == ("fake:bobs-new-bank", "", None)


def test_asking_again_does_not_shorten_the_wait_and_asking_back_ends_it(bob: UUID) -> None:
    choose(bob, "fake:bob")
    first = choose(bob, "fake:mallory").next_from
    assert choose(bob, "fake:mallory", minimum=5).next_from == first
    assert choose(bob, "fake:eve").next_from > first  # another place waits anew
    row = choose(bob, "fake:bob")
    assert (row.next_destination, row.next_from) == ("", None)


@pytest.mark.parametrize("destination", ["", "bob", "fake:", "fake:a b", "fake:" + "x" * 65, "fake:bob\n=1+1"])
def test_a_destination_that_cannot_be_is_refused_in_words(bob: UUID, destination: str) -> None:
    with pytest.raises(DestinationRefused):
        choose(bob, destination)


def test_a_rail_that_is_off_or_of_another_asset_is_refused(bob: UUID, settings: Any) -> None:
    with pytest.raises(RailOff):
        preferences.choose(bob, usd(), DesiredSettings("stripe", "acct_1"), actor="bob")
    settings.SOUK_PAYOUT_RAILS = ["fake", "chain"]
    with pytest.raises(RailOff):
        preferences.choose(bob, usd(), DesiredSettings("chain", "0x"), actor="bob")
    with pytest.raises(AmountInvalid):
        choose(bob, minimum=-1)
    with pytest.raises(RailUnknown):
        registry.open_payouts("stripe")


def test_pretended_money_is_refused_where_others_can_come(settings: Any, bob: UUID) -> None:
    from billing.payouts.checks import check_rails

    assert check_rails(None) == []
    settings.SOUK_API_URL = "https://souk.example"
    with pytest.raises(FakeMoneyRefused):
        choose(bob)
    assert [found.id for found in check_rails(None)] == ["souk.E041"]
    settings.SOUK_PAYOUT_RAILS = ["fkae"]
    settings.SOUK_PAYOUT_HOUR = 24
    assert [found.id for found in check_rails(None)] == ["souk.E040", "souk.E042"]
    settings.SOUK_PAYOUT_RAILS, settings.SOUK_PAYOUT_HOUR = ["stripe"], 22
    settings.SOUK_RESERVE_BPS, settings.SOUK_PAYOUT_CHANGE_SECONDS = 10_001, -1
    assert [found.id for found in check_rails(None)] == ["souk.E043", "souk.E044"]


class WalletRail(FakePayouts):
    """Takes any address, as the chain's rail does."""

    def check_destination(self, destination: str) -> str:
        return destination


@pytest.fixture
def token(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Asset:
    settings.SOUK_PAYOUT_RAILS = ["chain"]
    monkeypatch.setattr(registry, "open_payouts", lambda name: WalletRail())
    return Asset.objects.create(id=7, code="TOK", scale=18, kind="erc20", chain_id=1337, contract="0x" + "1" * 40)


def test_a_new_wallet_signs_for_itself_and_its_signature_works_once(bob: UUID, token: Asset) -> None:
    wallet, other = EthereumAccount.create(), EthereumAccount.create()

    def signed(by: Any, version: int, address: str = wallet.address) -> DesiredSettings:
        text = wallet_text(bob, token, address, version)
        return DesiredSettings("chain", address, signature=by.sign_message(encode_defunct(text=text)).signature.hex())

    for wrong in (
        DesiredSettings("chain", wallet.address),
        DesiredSettings("chain", wallet.address, signature="0x12"),
        signed(other, 0),
    ):
        with pytest.raises(WalletNotSigned) as refused:
            preferences.choose(bob, token, wrong, actor="bob")
        assert refused.value.details["text"] == wallet_text(bob, token, wallet.address, 0)
    row = preferences.choose(bob, token, signed(wallet, 0), actor="bob")
    assert (row.destination, row.version) == (wallet.address, 1)
    preferences.choose(bob, token, signed(other, 1, other.address), actor="bob")
    preferences.choose(bob, token, DesiredSettings("chain", wallet.address), actor="bob")
    with pytest.raises(WalletNotSigned):
        preferences.choose(bob, token, signed(other, 1, other.address), actor="mallory")
    assert not Payout.objects.exists()


@pytest.mark.parametrize(
    ("schedule", "now", "due"),
    [
        ("daily", "2026-11-22T10:00", "2026-11-22T22:00"),
        ("daily", "2026-11-22T22:00", "2026-11-23T22:00"),
        ("weekly", "2026-11-22T10:00", "2026-11-23T22:00"),  # a Sunday
        ("weekly", "2026-11-23T22:00", "2026-11-30T22:00"),
        ("weekly", "2026-11-24T00:00", "2026-11-30T22:00"),
    ],
)
def test_payouts_are_late_in_the_day_or_on_mondays(schedule: str, now: str, due: str) -> None:
    at = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert next_due(schedule, at) == datetime.fromisoformat(due).replace(tzinfo=UTC)


def test_by_hand_is_never_due() -> None:
    assert next_due("manual", clock.now()) is None
