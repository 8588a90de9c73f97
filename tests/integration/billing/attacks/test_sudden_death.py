"""A process that is killed, not one that raises: SIGKILL between Stripe's answer and our commit, a dead database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest
from django.db import DatabaseError, connection, connections, transaction

from billing import dispatch
from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.models import TopUp, TopUpRefund, Transfer
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock, outbox
from marketplace.foundation.models import OutboxMessage
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.fiat import scenes
from tests.integration.billing.fiat.scenes import DOLLAR, available
from tests.integration.billing.scenes import assert_ledger_is_true, fund

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE_SECONDS = 60
# The dispatcher of a server, which dies by SIGKILL when it reaches the named seam, before it or right after it.
DISPATCHER = """
import importlib, os, signal, sys
import django
django.setup()
module, name, when = sys.argv[1:]
place = importlib.import_module(module)
original = getattr(place, name)
def dying(*args, **kwargs):
    if when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = original(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(place, name, dying)
from billing import dispatch, tasks
dispatch.dispatch_due()
"""


def dispatch_and_die(stripe: FakeStripe, module: str, name: str, when: str) -> None:
    url = urlsplit(os.environ["DATABASE_URL"])
    mine = {
        "DATABASE_URL": urlunsplit(url._replace(path=f"/{connection.settings_dict['NAME']}")),
        "DJANGO_SETTINGS_MODULE": "marketplace.config.settings",
        "SOUK_STRIPE_KEY": stripe.secret_key,
        "SOUK_STRIPE_API_BASE": stripe.url,
    }
    arguments = [sys.executable, "-c", DISPATCHER, module, name, when]
    environment = os.environ | mine
    died = subprocess.run(
        arguments, check=False, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert died.returncode == -signal.SIGKILL, died.stderr


def come_back(stripe: FakeStripe) -> None:
    """A minute later: the leases of the dead are over."""
    OutboxMessage.objects.filter(state=OutboxMessage.State.WAITING).update(lease_until=clock.now())
    scenes.call_until_done()
    scenes.receive_events(stripe)


@pytest.mark.parametrize(
    ("module", "name", "when"),
    [
        ("billing.fiat.topups", "apply_outcome", "before"),  # Stripe has charged and answered; we know nothing
        ("billing.fiat.topups", "_post_cost", "after"),  # the money is posted, and not committed
        ("billing.fiat.topups", "apply_outcome", "after"),  # it is credited, and the call is not done
    ],
)
def test_a_dispatcher_that_is_killed_charges_a_card_once_and_credits_it_once(
    stripe: FakeStripe, module: str, name: str, when: str
) -> None:
    alice = uuid4()
    scenes.save_card(stripe, alice)
    top_up = scenes.ask(alice, 50 * DOLLAR, method=TopUp.Method.SAVED_CARD)
    dispatch_and_die(stripe, module, name, when)
    assert len(stripe.store.all("charge")) == 1
    come_back(stripe)
    top_up.refresh_from_db()
    assert (top_up.state, available(alice)) == ("succeeded", 50 * DOLLAR)
    assert len(stripe.store.all("charge")) == 1
    scenes.assert_same_books(stripe)


def test_a_dispatcher_that_is_killed_refunds_once(stripe: FakeStripe) -> None:
    alice = uuid4()
    scenes.fund_platform(stripe)
    top_up = scenes.pay_in(stripe, alice, 50 * DOLLAR)
    from billing.fiat import refunds

    refunds.request_refund(top_up.pk, owner_id=alice, actor="alice")
    dispatch_and_die(stripe, "billing.fiat.refunds", "apply_refund", "before")
    come_back(stripe)
    assert len(stripe.store.all("refund")) == 1 and TopUpRefund.objects.get().state == "succeeded"
    assert available(alice) == 0
    scenes.assert_same_books(stripe)


def test_slow_calls_are_not_made_by_two_dispatchers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty are claimed at once, for a minute; the last would be another's by then."""
    made: list[str] = []

    def slow(message: OutboxMessage) -> str:
        made.append(message.business_key)
        if len(made) == 1:
            other = threading.Thread(target=work_elsewhere)
            other.start()
            other.join()
        return "done"

    def work_elsewhere() -> None:
        try:
            OutboxMessage.objects.filter(business_key="b").update(lease_until=clock.now())
            dispatch.dispatch_due()
        finally:
            connection.close()

    monkeypatch.setitem(dispatch._handlers, "slow", slow)
    outbox.enqueue("slow", "a", {})
    outbox.enqueue("slow", "b", {})
    dispatch.dispatch_due()
    assert sorted(made) == ["a", "b"]


def test_a_database_that_dies_in_the_middle_of_a_group_leaves_nothing_of_it() -> None:
    alice, bob = fund(uuid4()), uuid4()
    mine, his = open_accounts([AccountName(AccountKind.CUSTOMER_AVAILABLE, owner) for owner in (alice, bob)])
    before = Transfer.objects.count()

    def group() -> None:
        with transaction.atomic():
            new = ledger.NewTransfer(mine, his, DOLLAR, TransferCode.CORRECTION)
            ledger.post([new, new])
            kill_the_backend(connection.connection.info.backend_pid)
            ledger.post([new])

    with pytest.raises(DatabaseError):
        group()
    connection.close()
    assert (Transfer.objects.count(), available(alice), available(bob)) == (before, 10 * DOLLAR, 0)
    assert_ledger_is_true()


def kill_the_backend(pid: int) -> None:
    """As a restart of the database does to every connection."""

    def kill() -> None:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
        connections["default"].close()

    killer = threading.Thread(target=kill)
    killer.start()
    killer.join()
    time.sleep(0.1)
