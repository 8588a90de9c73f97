"""The committed score of the mutants: whole, high enough, and with a reason for each that survived."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.reasons import REASONS, reason_for
from tests.mutation.targets import GOAL, TARGETS

ROOT = Path(__file__).resolve().parents[3]
RESULTS: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / "mutation.json").read_text())


@pytest.mark.parametrize("name", RESULTS)
def test_all_mutants_of_a_committed_target_were_tried(name: str) -> None:
    result = RESULTS[name]
    assert name in TARGETS
    assert result["tried"] == result["mutants"], "a sample"
    assert result["killed"] + len(result["survivors"]) == result["tried"]


def test_the_committed_score_is_high_enough() -> None:
    killed, tried = (sum(result[key] for result in RESULTS.values()) for key in ("killed", "tried"))
    assert killed >= GOAL * tried > 0


def test_each_survivor_has_its_reason_and_each_reason_a_survivor() -> None:
    survivors = [row for result in RESULTS.values() for row in result["survivors"]]
    assert [row["where"] for row in survivors if reason_for(row) != row["why"] or not row["why"]] == []
    made = {(row["where"].partition(":")[0], line[1:].strip()) for row in survivors for line in row["diff"]}
    assert {(module, line) for module, lines in REASONS.items() for line in lines} <= made
