"""What is kept beyond the free allowance is paid for by the day, exactly and once; nobody owes anything for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from billing.account_kinds import AccountKind
from billing.books import deposits
from billing.books.balances import balance
from billing.books.chart_of_accounts import open_account
from billing.models import Account, Transfer
from billing.notices import mailing
from jobs import tasks
from jobs.artifacts import charges
from jobs.artifacts.quotas import GIB
from jobs.models import Artifact, Lease, StorageCharge
from jobs.models.artifacts import STORAGE_UNITS_PER_MICRO
from marketplace.accounts.models import Organisation
from marketplace.config.checks import check_retention
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage
from tests import stage
from tests.integration.billing.scenes import assert_ledger_is_true
from tests.integration.jobs.api.api_clients import API, client_of
from tests.integration.racing import race
from tests.row_states import create_in_state
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)
PRICE = 30_000  # micro-USD a GiB and month: a thousand a day
At = Callable[[float], None]
Day = Callable[[float], datetime]


@pytest.fixture(autouse=True)
def priced(settings: Any, local_store: Any) -> Any:
    """Alice pays for what is beyond 1 GiB."""
    settings.SOUK_STORAGE_USD_MICROS_PER_GIB_MONTH = PRICE
    settings.SOUK_STORAGE_GIB_FREE = 1
    return settings


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch, day: Day) -> At:
    """Both periodic tasks, on a day."""

    def run(days: float) -> None:
        with monkeypatch.context() as moved:
            moved.setattr(clock, "now", lambda: day(days))
            tasks.charge_storage()
            tasks.prune_artifacts()

    return run


@pytest.fixture
def poor(transactional_db: None) -> Organisation:
    return stage.organisation("poor")


def keep(owner: Organisation, gib: float, **more: Any) -> Artifact:
    """So much of an output, of no job unless it is given one."""
    fields = {"kind": "output", "completed_at": clock.now(), "size_bytes": int(gib * GIB)} | more
    return create_in_state(Artifact, "complete", organisation=owner, **fields)


def available(owner: Organisation) -> int:
    return balance(owner.pk, AccountKind.CUSTOMER_AVAILABLE)


def mails() -> list[dict[str, Any]]:
    return [each.payload for each in OutboxMessage.objects.filter(kind=mailing.MAIL_KIND).order_by("created_at")]


def test_a_day_beyond_the_allowance_is_charged_once_and_shown(alice: Organisation, at: At, day: Day) -> None:
    keep(alice, 3)
    at(0)
    at(0)
    charge = StorageCharge.objects.get()
    assert (charge.due_usd_micros, charge.charged_usd_micros, charge.remainder) == (2000, 2000, 0)
    assert available(alice) == 50 * DOLLAR - 2000
    (shown,) = [
        each for each in client_of(alice).get(f"{API}/transfers").json()["results"] if each["code"] == "storage"
    ]
    assert (shown["amount"], shown["change"], shown["debit_kind"]) == ("2000", "-2000", "customer_available")
    assert shown["credit_kind"] == "fee_revenue"
    at(1)
    assert available(alice) == 50 * DOLLAR - 4000
    use = client_of(alice).get(f"{API}/storage").json()
    assert (use["kept_bytes"], use["free_bytes"], use["usd_micros_per_gib_month"]) == (3 * GIB, GIB, PRICE)
    assert (use["charged_day"], use["due_usd_micros"], use["is_paid"]) == (f"{day(1):%Y-%m-%d}", 2000, True)
    none = client_of(stage.organisation("mallory")).get(f"{API}/storage").json()
    assert (none["kept_bytes"], none["charged_day"]) == (0, None)
    assert_ledger_is_true()


def test_what_is_within_the_allowance_and_what_is_not_there_yet_is_free(alice: Organisation, at: At) -> None:
    keep(alice, 1)
    create_in_state(Artifact, "uploading", organisation=alice, kind="input", size_bytes=100 * GIB)
    at(0)
    assert not StorageCharge.objects.exists()


def test_prepared_data_are_never_charged_and_never_go_for_another_debt(poor: Organisation, at: At) -> None:
    prepared = keep(poor, 100, kind="prepared", completed_at=clock.now() - DAY)
    assert charges.charge_due() == 0
    output = keep(poor, 3)
    assert charges.charge_due() == 1
    assert (StorageCharge.objects.get().due_usd_micros, StorageCharge.objects.get().kept_bytes) == (2000, 3 * GIB)
    unpaid = Artifact.objects.filter(unpaid_until__isnull=False).values_list("pk", flat=True)
    assert list(unpaid) == [output.pk], "the older one goes when its job has ended, whoever pays"
    (mail,) = mails()
    assert "3.00 GiB of" in mail["text"]
    assert client_of(poor).get(f"{API}/storage").json()["kept_bytes"] == 3 * GIB
    at(0)
    assert stage.states_of([prepared, output]) == ["deleted", "complete"]


def test_without_a_price_nothing_is_charged(alice: Organisation, at: At, priced: Any) -> None:
    priced.SOUK_STORAGE_USD_MICROS_PER_GIB_MONTH = 0
    keep(alice, 100)
    at(0)
    assert (StorageCharge.objects.count(), available(alice)) == (0, 50 * DOLLAR)


def test_days_cost_in_sum_what_their_bytes_cost_to_the_unit(alice: Organisation, at: At, priced: Any) -> None:
    chance = random.Random(7)
    exact = 0
    row = keep(alice, 2)
    for day in range(40):
        size, price = GIB + chance.randrange(1, GIB // 50), chance.randrange(1, 100_000)
        Artifact.objects.filter(pk=row.pk).update(size_bytes=size)
        priced.SOUK_STORAGE_USD_MICROS_PER_GIB_MONTH = price
        at(day)
        exact += (size - GIB) * price
    charged = sum(each.charged_usd_micros for each in StorageCharge.objects.all())
    newest = StorageCharge.objects.order_by("-day")[0]
    assert charged * STORAGE_UNITS_PER_MICRO + newest.remainder == exact
    assert 0 < charged == 50 * DOLLAR - available(alice)
    assert Transfer.objects.filter(code="storage").count() <= 40
    assert_ledger_is_true()


def test_of_workers_that_charge_the_same_day_at_once_one_does(alice: Organisation) -> None:
    keep(alice, 3)
    today = clock.now().date()
    outcomes = race(*[lambda: charges.charge_day(alice.pk, today)] * 4)
    assert not [each for each in outcomes if isinstance(each, Exception)]
    assert (StorageCharge.objects.count(), available(alice)) == (1, 50 * DOLLAR - 2000)


def test_an_empty_balance_makes_no_debt_and_the_oldest_goes_after_a_week(
    poor: Organisation, lease: Lease, at: At, day: Day
) -> None:
    old, newer, newest = (keep(poor, 1, completed_at=clock.now() - n * DAY) for n in (3, 2, 1))
    job = lease.attempt.job
    type(job).objects.filter(pk=job.pk).update(organisation=poor)  # it lives, and what it saved is the oldest of all
    living = keep(poor, 0.5, job=job, kind="checkpoint", attempt=lease.attempt, completed_at=clock.now() - 9 * DAY)
    at(0)
    charge = StorageCharge.objects.get()
    assert (charge.due_usd_micros, charge.charged_usd_micros, charge.is_paid, charge.remainder) == (2500, 0, False, 0)
    assert (available(poor), Transfer.objects.filter(code="storage").count()) == (0, 0)
    shown = {each.pk: client_of(poor).get(f"{API}/artifacts/{each.pk}").json()["kept_until"] for each in (old, living)}
    assert (shown[old.pk][:10], shown[living.pk]) == (f"{day(7):%Y-%m-%d}", None)
    (mail,) = mails()
    assert f"{day(7):%Y-%m-%d}" in mail["subject"]
    assert "nothing is owed" in mail["text"] and "3.00 GiB" in mail["text"]
    at(6.9)
    assert stage.states_of([old, newer, newest, living]) == ["complete"] * 4
    at(7.1)
    assert stage.states_of([old, newer, newest, living]) == ["deleted"] * 3 + ["complete"]
    at(8.1)
    assert len(mails()) == 1
    assert_ledger_is_true()


def test_only_as_much_goes_as_is_beyond_the_allowance(poor: Organisation, at: At) -> None:
    old, newer = (keep(poor, 0.75, completed_at=clock.now() - n * DAY) for n in (2, 1))
    at(0)
    at(7.1)
    assert stage.states_of([old, newer]) == ["deleted", "complete"]
    at(8.1)
    assert stage.states_of([newer]) == ["complete"]


def test_who_pays_a_later_day_keeps_what_has_not_gone(poor: Organisation, at: At) -> None:
    rows = [keep(poor, 2), keep(poor, 2)]
    at(0)
    assert Artifact.objects.filter(unpaid_until__isnull=False).count() == 2
    deposits.credit(poor.pk, DOLLAR, reference="late", actor="operator")
    at(1)
    assert Artifact.objects.filter(unpaid_until__isnull=False).count() == 0
    at(8)
    assert stage.states_of(rows) == ["complete", "complete"]
    assert available(poor) == DOLLAR - 6000, "the day that was not paid is not owed"


def test_a_top_up_of_the_same_day_pays_it(poor: Organisation, at: At) -> None:
    rows = [keep(poor, 2)]
    at(0)
    at(0)
    assert (len(mails()), StorageCharge.objects.get().is_paid) == (1, False)
    deposits.credit(poor.pk, DOLLAR, reference="soon", actor="operator")
    at(0)
    assert (StorageCharge.objects.get().is_paid, available(poor)) == (True, DOLLAR - 1000)
    at(0.00001)
    assert (available(poor), Artifact.objects.get(pk=rows[0].pk).unpaid_until) == (DOLLAR - 1000, None)
    assert_ledger_is_true()


def test_who_keeps_little_again_keeps_it(poor: Organisation, at: At) -> None:
    rows = [keep(poor, 0.75), keep(poor, 0.75)]
    at(0)
    Artifact.objects.filter(pk=rows[1].pk).update(size_bytes=0)
    at(1)
    at(8)
    assert stage.states_of(rows) == ["complete", "complete"]


def test_a_frozen_balance_is_not_charged_either(alice: Organisation, at: At) -> None:
    keep(alice, 2)
    account = open_account(AccountKind.CUSTOMER_AVAILABLE, alice.pk)
    Account.objects.filter(pk=account.pk).update(is_frozen=True)
    at(0)
    assert (StorageCharge.objects.get().is_paid, available(alice)) == (False, 50 * DOLLAR)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SOUK_STORAGE_USD_MICROS_PER_GIB_MONTH", -1),
        ("SOUK_STORAGE_USD_MICROS_PER_GIB_MONTH", 1_000_000_001),
        ("SOUK_STORAGE_GIB_FREE", -1),
        ("SOUK_STORAGE_GIB_FREE", float("nan")),
        ("SOUK_STORAGE_GIB_FREE", float("inf")),
    ],
)
def test_a_price_that_cannot_be_meant_is_refused_at_the_start(settings: Any, name: str, value: float) -> None:
    assert check_retention(None) == []
    setattr(settings, name, value)
    assert [found.id for found in check_retention(None)] == ["souk.E015"]
