"""A runner is killed for real, by SIGKILL, at every seam: its connection breaks, and nothing of its own cleans up."""

from __future__ import annotations

import os
import signal
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from billing import dispatch
from billing.payouts import submission
from billing.payouts.running import run_payouts
from billing.reconciliation.reconciling import reconcile
from tests.integration.billing.payouts.scenes import choose, earn, make_due, paid_outside, send, spendable, states
from tests.integration.billing.payouts.seams import SEAMS
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true

DIES = signal.SIGKILL


def run_and_be_killed(place: Any, name: str, when: str) -> int:
    """A process that runs payouts and calls, and kills itself at the seam; how it ended, as waitpid says it."""
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # no connection may be shared with the child
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        original = getattr(place, name)

        def killing(*args: Any, **kwargs: Any) -> Any:
            if when == "after":
                original(*args, **kwargs)
            os.kill(os.getpid(), DIES)

        setattr(place, name, killing)
        run_payouts()
        dispatch.dispatch_due()
        submission.follow_payouts()
    finally:
        os._exit(0)  # it lived: the seam was not reached, and the test says so


@pytest.mark.django_db(transaction=True)
def test_whoever_is_killed_wherever_everybody_is_paid_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name in SEAMS:
        for when in ("before", "after"):
            providers = [uuid4() for _ in range(2)]
            rows = []
            for provider in providers:
                earn(provider)
                rows.append(choose(provider))
            assert run_and_be_killed(place, name, when) == DIES, (name, when)
            with monkeypatch.context() as patch:
                patch.setattr(submission, "LOST_AFTER", submission.LOST_AFTER * 0)
                patch.setattr(submission, "FOLLOW_EVERY", submission.FOLLOW_EVERY * 0)
                for _ in range(2):
                    for row in rows:
                        make_due(row)
                    run_payouts()
                    send()
                    submission.follow_payouts()
            for provider in providers:
                found = (states(provider), spendable(provider), paid_outside(provider))
                assert found == (["confirmed"], 0, 10 * DOLLAR), (name, when)
    assert reconcile(reason="by hand").is_clean
    assert_ledger_is_true()
