"""An image that cannot be fetched is found before anything is installed: an engine that answers over a real socket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provider_agent.preflight.abilities import DesiredSettings
from provider_agent.preflight.examine import _check_image
from provider_agent.preflight.image import check_image
from tests.unit.provider_agent.preflight.conftest import Engine


def test_an_image_that_is_here_or_that_a_registry_has_is_fine(engine: Engine) -> None:
    engine.answers = {"/images/lab/train:2/json": (200, {}), "/distribution/gpusouk/train:latest/json": (200, {})}
    assert check_image("docker", "lab/train:2").found == "lab/train:2 is here"
    assert "is pulled when the agent starts" in check_image("docker").found


def test_an_image_that_cannot_be_had_names_the_three_ways_to_have_one(engine: Engine) -> None:
    engine.answers = {"/distribution/gpusouk/train:latest/json": (403, {"message": "denied: no such repository"})}
    found = check_image("docker")
    assert found.verdict == "FIX"
    assert "cannot be pulled: denied: no such repository" in found.found
    for way in ("docker pull gpusouk/train:latest", "Dockerfile.train -t gpusouk/train:latest", "--train-image"):
        assert way in found.fix


def test_a_repair_is_not_held_up_by_an_image(engine: Engine, tmp_path: Path) -> None:
    assert _check_image(DesiredSettings().of_node(tmp_path)).verdict == "FIX"
    (tmp_path / "config.json").write_text(json.dumps({"train_image": "lab/train:2"}))
    found = _check_image(DesiredSettings().of_node(tmp_path))
    assert (found.verdict, "lab/train:2" in found.found) == ("SKIP", True)


def test_other_executors_and_other_ways_to_an_engine_need_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_image("process").verdict == "SKIP"
    monkeypatch.setenv("DOCKER_HOST", "tcp://engine:2375")
    assert "when the agent starts" in check_image("docker").found
