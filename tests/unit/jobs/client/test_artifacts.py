"""`souk artifacts` says of everything that a job left in which state it is."""

from __future__ import annotations

from uuid import UUID

from tests.unit.jobs.client.conftest import Run
from tests.unit.jobs.client.fake_answers import NOW
from tests.unit.jobs.client.fake_server import FakeMarketplace

CONDEMNED = {"artifact_id": str(UUID(int=8)), "kind": "checkpoint", "step": 99, "condemned_at": NOW.isoformat()}


def test_a_condemned_checkpoint_is_called_so(run: Run, market: FakeMarketplace) -> None:
    market.more_artifacts = [CONDEMNED, CONDEMNED | {"artifact_id": str(UUID(int=9)), "state": "deleted"}]
    rows = {line.split()[0]: line for line in run("artifacts", market.job_id).out.splitlines()[1:]}
    assert [rows[str(UUID(int=n))].split()[3] for n in (7, 8, 9)] == ["complete", "condemned", "deleted"]


def test_a_condemned_checkpoint_is_downloaded_only_by_its_id(run: Run, market: FakeMarketplace) -> None:
    market.more_artifacts = [CONDEMNED, CONDEMNED | {"artifact_id": str(UUID(int=9)), "step": 9, "condemned_at": None}]
    fetched = run("download", market.job_id, "--kind", "checkpoint", "--json").json["artifact_id"]
    assert fetched == str(UUID(int=9))


def test_one_is_deleted_by_the_beginning_of_its_id(run: Run, market: FakeMarketplace) -> None:
    market.more_artifacts = [CONDEMNED | {"artifact_id": "0193a1b2-0000-7000-8000-000000000001"}]
    ended = run("artifacts", market.job_id, "--delete", "0193a1", "--yes")
    assert (ended.status, "were deleted" in ended.out) == (0, True)
    assert market.routes("DELETE") == ["/api/v1/artifacts/0193a1b2-0000-7000-8000-000000000001"]


def test_nothing_is_deleted_by_an_id_that_names_two_or_without_a_yes(run: Run, market: FakeMarketplace) -> None:
    market.more_artifacts = [CONDEMNED]
    ambiguous = run("artifacts", market.job_id, "--delete", "0000", "--yes")
    assert (ambiguous.status != 0, "2 artifacts" in ambiguous.err) == (True, True)
    assert run("artifacts", market.job_id, "--delete", str(UUID(int=8))).status != 0, "nobody is there to say yes"
    assert market.routes("DELETE") == []


def test_storage_says_what_is_kept_and_that_an_unpaid_day_is_not_owed(run: Run, market: FakeMarketplace) -> None:
    market.storage = {"kept_bytes": 3 << 30, "allowed_bytes": 500 << 30, "free_bytes": 1 << 30}
    market.storage |= {"usd_micros_per_gib_month": 20_000, "output_kept_days": 90.0}
    market.storage |= {"charged_day": "2026-05-10", "due_usd_micros": 1333, "is_paid": False}
    shown = run("storage").out
    assert "3.00 GiB of 500.00 GiB" in shown
    assert "$0.02 a GiB for 30 days, beyond 1.00 GiB" in shown
    assert "$0.001333 for 2026-05-10, not covered by the balance, and not owed" in shown
