"""One tiny model and one replica of it, shared by the tests that only send requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.runtimes.serve.replicas import Replica, make_llama


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model's folder."""
    return make_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def replica(tmp_path_factory: pytest.TempPathFactory, llama: Path) -> Iterator[Replica]:
    """A replica of it by transformers, in a folder whose path is longer than a socket's may be."""
    root = tmp_path_factory.mktemp("replica") / ("long" * 30)
    made = link_model(Replica(root, ["--report-seconds", "0.2"]).write({"engine": "transformers"}), llama)
    try:
        yield made.start().until_ready()
    finally:
        made.end()


@pytest.fixture
def start(tmp_path: Path, llama: Path) -> Iterator[Callable[..., Replica]]:
    """Starts replicas that end with the test."""
    started: list[Replica] = []

    def begin(*arguments: str, **config: Any) -> Replica:
        made = link_model(Replica(tmp_path / f"work{len(started)}", list(arguments)).write(config), llama)
        started.append(made)
        return made.start()

    yield begin
    for each in started:
        each.end()


def link_model(replica: Replica, folder: Path) -> Replica:
    """Put the model among the inputs."""
    target = replica.root / "input" / "model"
    target.mkdir(parents=True)
    for path in folder.iterdir():
        (target / path.name).hardlink_to(path)
    return replica
