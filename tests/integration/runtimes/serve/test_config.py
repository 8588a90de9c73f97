"""A replica's configuration is refused whole, with every mistake, before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.spec import kind_of, parse
from runtimes.serve.__main__ import rename_options
from runtimes.serve.config import parse_config, read_config
from runtimes.serve.errors import BadConfig
from tests.integration.runtimes.serve.replicas import Replica

GOOD: dict[str, Any] = {"model": {"job": "x"}, "served_as": "tiny"}
JOB = """
kind: serve
name: tiny
resources: {gpus: 1}
budget: {max_total: 5}
serve: {model: {hub: org/name@main}, limits: {context: 2048}, verify: 5}
network: public
"""


def test_what_a_job_file_gives_is_understood() -> None:
    spec = parse(JOB)
    config = parse_config(kind_of(spec).config(spec))
    assert (config.model.kind, config.model.value, config.context) == ("hub", "org/name@main", 2048)
    assert config.verify


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {}}, "exactly one of"),
        ({"model": {"job": "a", "hub": "b"}}, "exactly one of"),
        ({"model": {"folder": "../etc"}}, "within its folder"),
        ({"model": {"lent": "/etc"}}, "within its folder"),
        ({"model": "x"}, "exactly one of"),
        ({"engine": "sglang"}, "one of auto, vllm"),
        ({"context": 3}, "whole number from 16"),
        ({"context": True}, "whole number from 16"),
        ({"max_tokens": "1"}, "whole number from 1"),
        ({"verify": 1}, "true or false"),
        ({"verify": True, "engine": "vllm"}, "verify needs the engine souk"),
        ({"trust_remote_code": True}, "unknown key"),
        ({"served_as": ""}, "1 to 300 characters"),
    ],
)
def test_mistake_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        parse_config(GOOD | change)


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(BadConfig) as raised:
        parse_config({"engine": "x", "dtype": "y"})
    assert len(raised.value.mistakes) == 4


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(BadConfig):
        read_config(tmp_path / "config.json")


def test_replica_with_a_bad_configuration_says_so_and_ends(tmp_path: Path) -> None:
    replica = Replica(tmp_path).write({"engine": "nothing"}).start()
    assert replica.wait() == 64
    (failed,) = replica.events()
    assert (failed["event"], failed["exit_code"]) == ("failed", 64)


def test_replica_without_a_model_says_so_and_ends(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    replica = Replica(tmp_path).write({}).start()
    assert replica.wait() == 65
    assert "holds no config.json" in replica.events("failed")[0]["message"]


def test_old_name_of_an_option_works_and_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--tell-seconds", "2", "--quiet-seconds=3", "--config", "--tell-seconds.json"]
    assert rename_options(given) == ["--report-seconds", "2", "--idle-seconds=3", "--config", "--tell-seconds.json"]
    assert capsys.readouterr().err.splitlines() == [
        "souk serve: --tell-seconds is deprecated, use --report-seconds",
        "souk serve: --quiet-seconds is deprecated, use --idle-seconds",
    ]
