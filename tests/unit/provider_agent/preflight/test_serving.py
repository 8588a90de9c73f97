"""Preflight of serving, with an engine that answers over a real socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provider_agent.preflight.abilities import DesiredSettings
from provider_agent.preflight.serving import check_serving, why_no_socket
from tests.unit.provider_agent.preflight.conftest import Engine

SERVE_IMAGE = "/images/gpusouk/serve:latest/json"
LETS_OUT: dict[str, Any] = {"runc": {}, "runsc": {"path": "runsc", "runtimeArgs": ["--host-uds=create"]}}
KEEPS_IN: dict[str, Any] = {"runc": {}, "runsc": {"path": "runsc", "runtimeArgs": ["--network=host"]}}


@pytest.mark.parametrize(
    ("runtime", "is_let_out"),
    [
        ({"runtimeArgs": ["--platform=ptrace", "--host-uds=create"]}, True),
        ({"runtimeArgs": ["-host-uds=all"]}, True),
        ({"runtimeArgs": ["--host-uds", "create", "--debug"]}, True),
        ({"runtimeArgs": ["--host-uds=open"]}, False),
        ({"runtimeArgs": ["--host-uds=create", "--host-uds=none"]}, False),
        ({"runtimeArgs": ["host-uds=create"]}, False),
        ({"runtimeArgs": ["--host-uds"]}, False),
        ({"runtimeArgs": None}, False),
        ({"runtimeType": "io.containerd.runsc.v1"}, False),
        (None, False),
    ],
)
def test_gvisor_lets_sockets_out_only_where_its_runtime_says_so(runtime: dict[str, Any], is_let_out: bool) -> None:
    assert (why_no_socket({"runc": {}, "runsc": runtime}) == "") is is_let_out


def test_an_engine_without_gvisor_keeps_no_socket() -> None:
    assert why_no_socket({"runc": {"path": "runc"}}) == ""


def test_a_computer_with_the_image_can_serve(engine: Engine) -> None:
    engine.answers = {"/info": (200, {"Runtimes": LETS_OUT}), SERVE_IMAGE: (200, {})}
    assert check_serving(DesiredSettings()).as_text() == "PASS  serving: gpusouk/serve:latest is here"
    engine.answers = {"/distribution/lab/serve:2/json": (200, {})}
    assert (
        "is pulled before the first model is served" in check_serving(DesiredSettings(serve_image="lab/serve:2")).found
    )


def test_a_sandbox_that_keeps_the_socket_is_reported_with_the_way_out(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.answers = {"/info": (200, {"Runtimes": KEEPS_IN}), SERVE_IMAGE: (200, {})}
    found = check_serving(DesiredSettings())
    assert found.verdict == "SKIP", "nobody asked for serving, and the rest goes on"
    assert "lacks --host-uds=create" in found.found
    assert "/etc/docker/daemon.json" in found.fix
    assert check_serving(DesiredSettings(isolation="runc")).verdict == "PASS"
    monkeypatch.setattr("provider_agent.preflight.serving.DRIVER_VERSION", Path("/proc/self"))  # as if there were a GPU
    assert check_serving(DesiredSettings()).verdict == "PASS", "with GPUs gVisor is used only where it is asked for"
    assert check_serving(DesiredSettings(isolation="gvisor")).verdict == "SKIP"
    assert check_serving(DesiredSettings(), device_kind="cpu").verdict == "SKIP"


def test_an_image_that_was_asked_for_must_be_had_and_the_usual_one_need_not(engine: Engine) -> None:
    assert check_serving(DesiredSettings()).verdict == "SKIP"
    found = check_serving(DesiredSettings(serve_image="lab/serve:2"))
    assert found.verdict == "FIX"
    assert "lab/serve:2 is not here and cannot be pulled" in found.found
    assert "Dockerfile.serve --target plain -t lab/serve:2" in found.fix
    assert "--serve-image" in found.fix
    assert check_serving(DesiredSettings(serve_image="lab/serve:2", is_enrolled=True)).verdict == "SKIP"


def test_processes_serve_from_the_agents_own_environment() -> None:
    assert check_serving(DesiredSettings(executor="process")).verdict == "SKIP"
