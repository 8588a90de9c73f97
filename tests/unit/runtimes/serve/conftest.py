"""One tiny model, shared by the tests that only read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.runtimes.serve.replicas import make_llama


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model's folder."""
    return make_llama(tmp_path_factory.mktemp("llama"))
