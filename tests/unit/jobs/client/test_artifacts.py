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
