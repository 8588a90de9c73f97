"""Trainings whose data are on S3: the same as from files, found again without a fetch, refused where they changed."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import MANIFEST_NAME, NEW_CACHE_NAME, Env, ExitCode
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, finish, losses, wait_until
from tests.integration.runtimes.s3_server import BUCKET, S3Server, running_s3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KEYS = {"AWS_ACCESS_KEY_ID": "AKIAALICE", "AWS_SECRET_ACCESS_KEY": "alices-very-own-secret"}
CONFIG: dict[str, Any] = {**MICRO_CONFIG, "steps": 4, "warmup_steps": 2, "evaluate_every": 0, "log_samples": False}
LOCAL = ["docs.jsonl", "more.txt", "tables"]
ON_S3 = [f"s3://{BUCKET}/data/docs.jsonl", f"s3://{BUCKET}/data/*.txt", f"s3://{BUCKET}/data/tables"]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """Alice's bucket, and the variables of her job."""
    with running_s3() as server:
        for name, value in {**KEYS, "AWS_ENDPOINT_URL_S3": server.url}.items():
            monkeypatch.setenv(name, value)
        yield server


def prepare(root: Path, *, ranks: int = 1, **config: Any) -> Work:
    """A work folder with text, lines and tables among its files, and a cache of the node that is empty."""
    from pyarrow import Table, parquet

    work = Work(root / "work", ranks=ranks, launched=ranks > 1, env={Env.CACHE_DIR: str(root / "cache")})
    work.write({**CONFIG, **config})
    (root / "cache").mkdir(exist_ok=True)
    texts = [json.loads(line)["text"] for line in (work.root / "input" / "docs.jsonl").read_text().splitlines()]
    (work.root / "input" / "tables").mkdir()
    table: Any = Table
    for number, part in enumerate((texts[:2], texts[2:4])):
        rows = table.from_pylist([{"text": text.upper()} for text in part])
        parquet.write_table(rows, work.root / "input" / "tables" / f"part-{number}.parquet")
    return work


def send(work: Work, s3: S3Server) -> None:
    """What was among its files is on S3 in their place."""
    folder = work.root / "input"
    paths = [path for path in folder.rglob("*") if path.is_file() and "micro-llama" not in path.parts]
    s3.put({f"data/{path.relative_to(folder)}": path.read_bytes() for path in paths})
    for path in paths:
        path.unlink()


def take(work: Work, root: Path) -> Path:
    """What the agent does with what it left; the cache."""
    for manifest in (work.root / NEW_CACHE_NAME).glob(f"*/*/{MANIFEST_NAME}"):
        shutil.copytree(manifest.parent, root / "cache" / manifest.parent.parent.name / manifest.parent.name)
    return root / "cache"


def test_a_training_from_s3_is_the_one_from_the_same_files_and_is_fetched_once(s3: S3Server, tmp_path: Path) -> None:
    local = prepare(tmp_path / "local", ranks=2, data=LOCAL)
    code, output = local.run()
    assert code == 0, output
    first = prepare(tmp_path / "first", ranks=2, data=ON_S3)
    send(first, s3)
    code, output = first.run()
    assert code == 0, output
    assert losses(first) == losses(local) != {}
    assert (
        "data: fetched 0.1 MB of s3://alices/data/docs.jsonl, s3://alices/data/*.txt, s3://alices/data/tables" in output
    )
    assert len(s3.reads()) == 4, "by the first rank alone"
    assert not list(first.root.glob(".s3*")), "nobody reads the files once there are tokens"
    said = output + (first.root / "events.jsonl").read_text()
    assert not [value for value in KEYS.values() if value in said]
    # A later training of the same organisation on this node.
    s3.asked.clear()
    second = prepare(tmp_path / "second", ranks=2, data=ON_S3)
    second.env = {Env.CACHE_DIR: str(take(first, tmp_path / "first"))}
    code, output = second.run()
    assert code == 0, output
    assert "data: found in the cache of this node" in output
    assert "; nothing was fetched from S3" in output
    assert losses(second) == losses(first)
    assert s3.reads() == []
    assert s3.asked != []


def test_data_that_changed_are_not_trained_on_and_condemn_nobody(s3: S3Server, tmp_path: Path) -> None:
    first = prepare(tmp_path / "first", data=ON_S3)
    send(first, s3)
    first.env |= {Env.CHECKPOINT_EVERY_STEPS: "2"}
    assert first.run()[0] == 0
    [checkpoint] = first.checkpoints.glob("step-*02")

    def resume(name: str) -> tuple[int, str]:
        work = prepare(tmp_path / name, data=ON_S3)
        work.env |= {Env.RESUME_FROM: str(checkpoint)}
        code, _ = work.run()
        failed = work.events("failed")
        return code, failed[0]["message"] if failed else ""

    assert resume("same") == (ExitCode.OK, "")
    s3.put({"data/more.txt": b"Another text.\n" * 400})
    s3.asked.clear()
    code, message = resume("changed")
    assert code == ExitCode.BAD_CHECKPOINT, "which is no judgement of it where data are on S3"
    assert "the data is not what the checkpoint was trained on: the objects on S3 have changed since" in message
    assert s3.reads() == [], "the checkpoint knows of which objects it is"
    s3.owner.delete_object(Bucket=BUCKET, Key="data/more.txt")
    code, message = resume("gone")
    assert code == ExitCode.INTERNAL
    assert "there is nothing to read at s3://alices/data/*.txt" in message
    s3.before = lambda asked: 403
    code, message = resume("refused")
    assert code == ExitCode.INTERNAL
    assert "S3 refuses s3://alices/data/" in message


def test_a_first_attempt_that_s3_refuses_is_the_customers(s3: S3Server, tmp_path: Path) -> None:
    work = prepare(tmp_path, data=ON_S3)
    send(work, s3)
    s3.before = lambda asked: 403 if asked.is_read else None
    code, output = work.run()
    (failed,) = work.events("failed")
    assert (code, failed["exit_code"]) == (ExitCode.BAD_DATA, ExitCode.BAD_DATA), output
    assert "the job's credentials must let it list and read there" in failed["message"]
    assert not [value for value in KEYS.values() if value in output + failed["message"]]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_job_that_is_to_stop_does_not_wait_for_s3(s3: S3Server, tmp_path: Path, ranks: int) -> None:
    work = prepare(tmp_path, ranks=ranks, data=ON_S3)
    send(work, s3)
    s3.before = lambda asked: 503 if asked.is_read else None
    process = work.start()
    wait_until(lambda: s3.reads() != [], process)
    process.send_signal(signal.SIGTERM)
    code, output = finish(process, seconds=60)
    assert code == ExitCode.STOPPED, output
    assert work.events("failed") == []
