"""A configuration is checked whole: every mistake is named at once."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from runtimes.train.config import CHECKS, TrainConfig, parse_config, read_config
from runtimes.train.errors import BadConfig


def mistakes_of(raw: object) -> list[str]:
    with pytest.raises(BadConfig) as caught:
        parse_config(raw)
    return caught.value.mistakes


def test_defaults_need_only_how_much() -> None:
    config = parse_config({"steps": 10})
    assert config == TrainConfig(steps=10)
    assert config.steps_total == 10


def test_tokens_are_rounded_up_to_whole_steps() -> None:
    config = parse_config({"tokens": 2049, "global_batch_size": 16, "sequence_length": 128})
    assert config.steps_total == 2


def test_every_key_has_a_check() -> None:
    assert set(CHECKS) == {field.name for field in dataclasses.fields(TrainConfig)}


def test_every_mistake_is_listed_at_once() -> None:
    mistakes = mistakes_of({"learning_rat": 1, "learning_rate": 0, "steps": 0, "dtype": "int8", "betas": [0.9]})
    assert mistakes == [
        'unknown key "learning_rat", did you mean learning_rate?',
        "learning_rate must be a number above 0 and at most 10, got 0",
        "betas must be two numbers, got [0.9]",
        'dtype must be one of auto, float32, bfloat16, got "int8"',
        "steps must be a whole number from 1 to 1000000000, got 0",
    ]


@pytest.mark.parametrize(
    ("raw", "mistake"),
    [
        ({}, "one of steps and tokens must be given"),
        ({"steps": 1, "tokens": 1}, "only one of steps and tokens can be given"),
        ([], "the configuration must be a mapping of keys, not []"),
        ({"steps": True}, "steps must be a whole number from 1 to 1000000000, got true"),
        ({"steps": 1, "learning_rate": float("nan")}, "learning_rate must be a number above 0 and at most 10, got NaN"),
        ({"steps": 1, "data": []}, "data must be python-docs, a path or a list of paths, got []"),
        ({"steps": 1, "data": [1]}, "data must hold paths only, got [1]"),
        ({"steps": 1, "log_samples": 1}, "log_samples must be true or false, got 1"),
        (
            {"steps": 1, "log_samples": True, "global_batch_size": 5000},
            "log_samples needs a global_batch_size of at most 4096, got 5000",
        ),
        ({"steps": 1, "strategy": "zero3"}, 'strategy must be one of fsdp2, hsdp, ddp, got "zero3"'),
        ({"steps": 1, "strategy": ["ddp"]}, 'strategy must be one of fsdp2, hsdp, ddp, got ["ddp"]'),
        ({"steps": 1, "model": ""}, 'model must be a text of 1 to 300 characters, got ""'),
    ],
)
def test_mistake_says_what_was_expected(raw: object, mistake: str) -> None:
    assert mistakes_of(raw) == [mistake]


@pytest.mark.parametrize(("text", "mistake"), [("{", "is not JSON"), ("1" * 2_000_000, "is larger than")])
def test_unreadable_file_is_a_bad_config(text: str, mistake: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(BadConfig, match=mistake):
        read_config(path)


def test_missing_file_is_a_bad_config(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="cannot be read: No such file"):
        read_config(tmp_path / "config.json")


def test_bad_config_ends_the_program_with_64_and_one_event_before_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"steps": -1, "stepz": 3}))
    files = ["--config", str(tmp_path / "config.json"), "--output", str(tmp_path / "out")]
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "runtimes.train", *files],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 64
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("import time:")]
    assert len(lines) == 1
    assert 'the configuration has 2 mistakes: unknown key "stepz", did you mean steps?' in lines[0]
    assert "| torch" not in ended.stderr
    events = [json.loads(line) for line in (tmp_path / "out" / "events.jsonl").read_text().splitlines()]
    assert [(event["event"], event["exit_code"]) for event in events] == [("failed", 64)]
