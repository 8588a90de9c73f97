"""A customer's gigabyte: the command is killed while it sends, called again, and the program has every byte."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from examples.market import SOUK, Market, Party, run, wait_for
from tests.acceptance.customer import souk_of

pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]
LARGE_BYTES, SMALL_BYTES, SMALL_FILES = 700_000_000, 16_000_000, 19
PARTS_BEFORE_KILL = 5
JOB_FILE = """\
kind: command
name: gigabyte
resources: {kind: any, isolation: none}
budget: {max_total: 1.00}
files: [data]
command: cd input/data && sha256sum *.bin
"""


def stored(market: Market) -> set[Path]:
    """A folder for each artifact of this marketplace, also of the tests before this one."""
    return set((market.folder / "market" / "artifacts" / "objects").glob("*"))


def test_a_gigabyte_arrives_although_the_command_is_killed_once(market: Market, alice: Party, tmp_path: Path) -> None:
    expected, before = make_files(tmp_path / "data"), stored(market)
    job_file = tmp_path / "job.yaml"
    job_file.write_text(JOB_FILE)
    env = {name: value for name, value in alice.env(market.server).items() if name != "XDG_CONFIG_HOME"}
    command = [SOUK, "launch", str(job_file), "--yes", "--json"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first:
        wait_for(
            "some parts to be sent", lambda: first.poll() is not None or parts_sent(alice) >= PARTS_BEFORE_KILL, 120
        )
        assert first.poll() is None, (first.stdout and first.stdout.read(), first.stderr and first.stderr.read())
        first.kill()
    had = parts_sent(alice)
    run(command, env, seconds=400)
    with souk_of(market, alice) as souk:
        (job,) = souk.jobs()
    assert job.state == "completed", job.message
    log = run([SOUK, "logs", str(job.job_id)], env)
    assert {name: digest for digest, name in (line.split() for line in log.splitlines() if ".bin" in line)} == expected
    assert had >= PARTS_BEFORE_KILL
    assert len(stored(market) - before) == 1, "both tries were one upload"
    assert parts_sent(alice) == 0, "nothing is left to go on with"


def make_files(folder: Path) -> dict[str, str]:
    """One large and nineteen small files; name -> SHA-256."""
    folder.mkdir()
    digests = {}
    for number, size in enumerate([LARGE_BYTES, *[SMALL_BYTES] * SMALL_FILES]):
        path = folder / f"{number:02}.bin"
        path.write_bytes(os.urandom(1_000_000) * (size // 1_000_000))
        digests[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


def parts_sent(party: Party) -> int:
    """How many parts the command remembers."""
    found = (party.home / ".config" / "souk" / "uploads").glob("*.json")
    return sum(len(etags) for path in found for etags in json.loads(path.read_text())["etags"].values())
