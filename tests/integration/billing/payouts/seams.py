"""Where a payout can be interrupted."""

from __future__ import annotations

from typing import Any

from billing.payouts import confirming, outcomes, reserving, rolling_reserve, running, submission
from billing.rails.fake.payout_rail import FakePayouts
from marketplace.foundation import outbox

SEAMS: list[tuple[Any, str]] = [
    (rolling_reserve, "keep"),
    (running, "reserve_payouts"),
    (reserving, "_reserve"),
    (running, "enqueue"),
    (submission, "require_closed"),
    (submission, "_submit"),
    (submission, "_claim"),
    (FakePayouts, "submit"),
    (submission, "apply_outcomes"),
    (outcomes, "_confirm_together"),
    (outcomes, "confirm"),
    (confirming, "_transfers"),
    (confirming, "advance_all"),
    (outbox, "done"),
]
