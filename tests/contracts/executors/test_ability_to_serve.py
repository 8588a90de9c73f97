"""A container engine says whether models can be served over it: by its images, and by how gVisor is set up in it."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import pytest

from provider_agent.executors.docker import DockerExecutor
from tests.contracts.executors.engine import IMAGE

pytestmark = pytest.mark.docker


def why_not(engine: str, image: str, *, runtimes: dict[str, Any] | None = None, **options: Any) -> str:
    """Asked of a new executor; `runtimes` in place of those that the engine has."""

    async def ask() -> str:
        executor = DockerExecutor(engine_url=engine, **options)
        try:
            await executor.check()
            if runtimes is not None:
                executor._info["Runtimes"] = runtimes
            return await executor.why_no_serving(image, has_gpus=False)
        finally:
            await executor.close()

    return asyncio.run(ask())


def test_an_image_that_is_here_serves_and_one_that_nobody_has_does_not(engine: str) -> None:
    assert why_not(engine, IMAGE, isolation="runc") == ""
    problem = why_not(engine, "127.0.0.1:9/lab/serve:2", isolation="runc")
    assert problem.startswith("the image 127.0.0.1:9/lab/serve:2 is not here and cannot be pulled: ")


def test_gvisor_is_believed_by_what_the_engine_reports_of_it(engine: str) -> None:
    if shutil.which("runsc") is None:
        pytest.skip("not installed: runsc")
    assert why_not(engine, IMAGE, isolation="gvisor") == "", "the test's engine lets sockets out"
    kept: dict[str, Any] = {"runsc": {"path": "runsc", "runtimeArgs": []}}
    assert "gVisor keeps a server's socket inside" in why_not(engine, IMAGE, isolation="gvisor", runtimes=kept)
    assert why_not(engine, IMAGE, isolation="runc", runtimes=kept) == ""
