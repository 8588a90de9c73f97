"""Whether models could be served here: an image that does it, and a sandbox that lets the server's socket out."""

from __future__ import annotations

import http.client
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from provider_agent.preflight.abilities import DesiredSettings
from provider_agent.preflight.containers import DRIVER_VERSION, ask_engine, engine_socket
from provider_agent.preflight.finding import Finding
from provider_agent.preflight.image import check_serve_image

GVISOR_RUNTIME: Final = "runsc"
SOCKETS_FLAG: Final = "host-uds"
SOCKETS_LET_OUT: Final = frozenset({"create", "all"})
LET_SOCKETS_OUT: Final = (
    f'add "--{SOCKETS_FLAG}=create" to the runtimeArgs of {GVISOR_RUNTIME} in /etc/docker/daemon.json, then: '
    "systemctl restart docker; or choose isolation runc"
)


def check_serving(desired: DesiredSettings, *, device_kind: str = "auto") -> Finding:
    """What a node of containers needs to serve models; never held against the rest that it can do."""
    name, without = "serving", "models would not be served here"
    if desired.executor != "docker":
        return Finding("SKIP", name, "processes serve from an environment of the agent's")
    has_gpus = device_kind != "cpu" and DRIVER_VERSION.exists()
    is_gvisor = desired.isolation == "gvisor" or (desired.isolation in {"", "auto"} and not has_gpus)
    verdict = desired.verdict(is_asked=bool(desired.serve_image))
    if is_gvisor and (why := why_no_socket(_runtimes())):
        return Finding(verdict, name, f"{without}: {why}", LET_SOCKETS_OUT)
    image = check_serve_image(desired.serve_image)
    if image.verdict == "FIX":
        return Finding(verdict, name, f"{without}: {image.found}", image.fix)
    return replace(image, check=name)


def why_no_socket(runtimes: Mapping[str, Any]) -> str:
    """Why a socket that is made inside gVisor is not visible outside; empty if it is, and without gVisor.

    `runtimes` as the engine lists them.
    """
    if GVISOR_RUNTIME not in runtimes:
        return ""
    if _value_of(SOCKETS_FLAG, (runtimes[GVISOR_RUNTIME] or {}).get("runtimeArgs") or []) in SOCKETS_LET_OUT:
        return ""
    return f"gVisor keeps a server's socket inside (its engine lacks --{SOCKETS_FLAG}=create)"


def _value_of(flag: str, arguments: Sequence[str]) -> str:
    """The last value that was given, as Go reads flags: one dash or two, after = or as the next argument."""
    value = ""
    for argument, following in zip(arguments, [*arguments, ""][1:], strict=True):
        name, equals, given = argument.lstrip("-").partition("=")
        if argument.startswith("-") and name == flag:
            value = given if equals else following
    return value


def _runtimes() -> dict[str, Any]:
    """Of the engine here; none where it cannot be asked, which is a finding of its own."""
    path = engine_socket()
    try:
        status, info = ask_engine(path, "/info") if path else (0, {})
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    return dict(info.get("Runtimes") or {}) if status == http.client.OK else {}
