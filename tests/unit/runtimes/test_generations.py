"""What an agent announces of a gang's generations, as the launcher reads it: any program may have written there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtimes.contract import GANG_FILE, GANG_FILE_BYTES_MAX, Env
from runtimes.generations import GangFile, Generation, forget_beyond
from runtimes.launch import exit_code_of

ENVIRONMENT: dict[str, str] = {
    Env.MASTER_ADDR: "10.83.0.1",
    Env.MASTER_PORT: "29501",
    Env.RESUME_FROM: "/work/resume-2/step-00000040",
}
WHOLE = {"generation": 2, "resumed_step": 40, "environment": ENVIRONMENT}


def announced(work: Path, body: object, *, number: int = 1) -> GangFile:
    (work / GANG_FILE).write_text(body if isinstance(body, str) else json.dumps(body))
    return GangFile(work, number)


def test_a_newer_generation_is_taken_with_what_it_may_change_alone(tmp_path: Path) -> None:
    body = WHOLE | {"environment": ENVIRONMENT | {"LD_PRELOAD": "evil.so"}}
    assert announced(tmp_path, body).newer == Generation(2, dict(ENVIRONMENT), 40)
    assert announced(tmp_path, WHOLE, number=2).newer is None


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "[" * 10_000,
        "x" * (GANG_FILE_BYTES_MAX + 1),
        {"generation": 2},  # it began in this one
        WHOLE | {"generation": "2"},
        WHOLE | {"resumed_step": None},
        WHOLE | {"environment": {}},
        WHOLE | {"environment": ENVIRONMENT | {Env.MASTER_PORT: 29501}},
    ],
)
def test_what_is_no_whole_announcement_is_none(tmp_path: Path, body: object) -> None:
    found = announced(tmp_path, body)
    assert found.newer is None
    assert not found.is_coming


def test_one_that_is_coming_is_waited_for(tmp_path: Path) -> None:
    assert GangFile(tmp_path, 0).newer is None
    assert announced(tmp_path, {"coming": 2}).is_coming
    assert not announced(tmp_path, {"coming": 1}).is_coming
    assert not announced(tmp_path, {"coming": "2"}).is_coming


def test_another_size_is_taken_with_this_nodes_place_in_it(tmp_path: Path) -> None:
    place: dict[str, str] = {Env.NODES: "3", Env.NODE_RANK: "1", Env.ADDRESS: "10.83.0.2"}
    found = announced(tmp_path, WHOLE | {"environment": ENVIRONMENT | place})
    assert found.newer == Generation(2, ENVIRONMENT | place, 40)
    assert announced(tmp_path, WHOLE | {"environment": ENVIRONMENT | place | {Env.NODES: 3}}).newer is None


def test_later_checkpoints_alone_are_forgotten(tmp_path: Path) -> None:
    for name in ("step-00000020", "step-00000040", "step-00000060", "notes"):
        (tmp_path / name).mkdir()
    forget_beyond(tmp_path, 40)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "step-00000020", "step-00000040"]


@pytest.mark.parametrize(
    ("codes", "code"), [([79, 65], 65), ([79, -9], 137), ([79, 70], 70), ([79, 79], 79), ([79], 79)]
)
def test_a_lost_peer_is_the_cause_only_where_nothing_else_is(codes: list[int], code: int) -> None:
    assert exit_code_of(codes) == code
