"""What a customer does in these tests: a small training, launched and waited for."""

from __future__ import annotations

from typing import Any

from examples.market import Market, Party, wait_for
from jobs.client.sdk import Souk
from jobs.wire import JobView

# Device checks (test_checks.py has them) and a chain compute on the processors that these tests and all nodes share.
WITHOUT_CHECKS_AND_CHAIN = {"SOUK_VERIFICATION": "off", "SOUK_CHAINS": "[]"}
ENDS = {"completed", "failed", "cancelled"}
TINY: dict[str, Any] = {
    "kind": "train",
    "name": "tiny",
    "resources": {"gpus": 1, "kind": "any", "isolation": "none"},
    "work": {"steps": 400},
    "budget": {"max_total": "1.00"},
    "checkpoint": {"every": "10 steps", "keep": 2},
    "train": {"model": "tiny-llama", "data": ["python-docs"], "global_batch_size": 4, "sequence_length": 64},
}


def souk_of(market: Market, party: Party) -> Souk:
    """The marketplace, with this customer's key."""
    return Souk(market.server, party.key)


def wait_until(souk: Souk, job: JobView, states: set[str], seconds: float = 180) -> JobView:
    """The job once it is in one of `states`."""

    def look() -> JobView | None:
        view = souk.job(job.job_id)
        return view if view.state in states else None

    return wait_for(f"the job to be {' or '.join(sorted(states))}", look, seconds)


def launch(souk: Souk, spec: dict[str, Any]) -> JobView:
    """Request a quote and accept it."""
    quote = souk.quote(spec)
    assert quote.quote_id is not None, quote.plan
    return souk.submit(spec, quote.quote_id)
