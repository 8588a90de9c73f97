"""Downloads are whole, stay where they belong, and overwrite nothing unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.client.download import PARTIAL_SUFFIX, safe_target
from jobs.client.errors import TransferFailed
from jobs.client.transport import ATTEMPTS_MAX
from tests.unit.jobs.client.conftest import Run
from tests.unit.jobs.client.fake_http import Fault
from tests.unit.jobs.client.fake_server import FakeMarketplace

MODEL = bytes(range(256)) * 4000


@pytest.fixture
def into(market: FakeMarketplace, tmp_path: Path) -> Path:
    market.output = {"model.safetensors": MODEL, "sub/config.json": b"{}", "empty": b""}
    return tmp_path / "out"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_download_fetches_every_file_without_the_key(run: Run, market: FakeMarketplace, into: Path) -> None:
    ended = run("download", market.job_id, "--into", into)
    assert ended.status == 0
    assert contents(into) == market.output
    assert not any("authorization" in asked.headers for asked in market.asked if asked.path.startswith("/store/"))


def test_cut_connection_is_gone_on_with_where_it_was(run: Run, market: FakeMarketplace, into: Path) -> None:
    market.faults.append(Fault("GET /store/model", times=3, cut_at=300_000))
    assert run("download", market.job_id, "--into", into, "--json").status == 0
    ranges = [asked.headers.get("range") for asked in market.asked if asked.path == "/store/model.safetensors"]
    assert ranges == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]
    assert contents(into) == market.output


def test_interrupted_download_is_gone_on_with_by_the_next(run: Run, market: FakeMarketplace, into: Path) -> None:
    into.mkdir()
    (into / f"model.safetensors{PARTIAL_SUFFIX}").write_bytes(MODEL[:1000])
    assert run("download", market.job_id, "--into", into).status == 0
    assert "bytes=1000-" in [asked.headers.get("range") for asked in market.asked]
    assert contents(into) == market.output


def test_damaged_part_is_noticed_and_fetched_anew(run: Run, market: FakeMarketplace, into: Path) -> None:
    into.mkdir()
    (into / f"model.safetensors{PARTIAL_SUFFIX}").write_bytes(b"x" * 1000)
    assert run("download", market.job_id, "--into", into).status == 0
    assert contents(into) == market.output


def test_file_with_another_hash_is_never_kept(run: Run, market: FakeMarketplace, into: Path) -> None:
    market.output_sha256["model.safetensors"] = "0" * 64
    ended = run("download", market.job_id, "--into", into)
    assert ended.status == 12
    assert "SHA-256" in ended.err
    assert "model.safetensors" not in contents(into)


def test_existing_file_is_kept_without_force(run: Run, market: FakeMarketplace, into: Path) -> None:
    into.mkdir()
    (into / "model.safetensors").write_bytes(b"mine")
    ended = run("download", market.job_id, "--into", into)
    assert (ended.status, "--force overwrites it" in ended.err) == (12, True)
    assert contents(into) == {"model.safetensors": b"mine"}
    assert run("download", market.job_id, "--into", into, "--force").status == 0
    assert contents(into) == market.output


def test_second_download_fetches_nothing(run: Run, market: FakeMarketplace, into: Path) -> None:
    run("download", market.job_id, "--into", into)
    market.asked.clear()
    assert run("download", market.job_id, "--into", into).status == 0
    assert not [path for path in market.routes("GET") if path.startswith("/store/")]


def test_store_that_stays_away_is_reported(run: Run, market: FakeMarketplace, into: Path) -> None:
    market.faults.append(Fault("GET /store/model", times=ATTEMPTS_MAX))
    ended = run("download", market.job_id, "--into", into)
    assert (ended.status, "could not be fetched" in ended.err) == (12, True)


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "..", ".", "", "a\\..\\x", "C:x", "a\0b"])
def test_unsafe_path_writes_nothing(run: Run, market: FakeMarketplace, into: Path, path: str) -> None:
    market.output = {path: b"owned"}
    assert run("download", market.job_id, "--into", into).status == 12
    assert not into.exists()


def test_link_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path)
    with pytest.raises(TransferFailed):
        safe_target(tmp_path / "out", "link/x")
    with pytest.raises(TransferFailed):
        safe_target(tmp_path / "out", "link")
