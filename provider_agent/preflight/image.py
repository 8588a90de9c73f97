"""The image that measures the devices and trains: without it a node with containers is never listed."""

from __future__ import annotations

import http.client
from typing import Final
from urllib.parse import quote

from provider_agent.images import TRAIN_IMAGE
from provider_agent.preflight.containers import ask_engine, engine_socket
from provider_agent.preflight.finding import Finding

REGISTRY_SECONDS_MAX: Final = 30.0


def check_image(executor: str, name: str = "", *, url: str = "") -> Finding:
    """Whether the engine has it, or its registry does."""
    name = name or TRAIN_IMAGE
    if executor != "docker":
        return Finding("SKIP", "image", "processes run in an environment of the agent's")
    path = engine_socket(url)
    if path is None:
        return Finding("SKIP", "image", f"{name} is looked for when the agent starts")
    path_name = quote(name, safe="/:@")
    try:
        status, _ = ask_engine(path, f"/images/{path_name}/json")
        if status == http.client.OK:
            return Finding("PASS", "image", f"{name} is here")
        status, answer = ask_engine(path, f"/distribution/{path_name}/json", seconds=REGISTRY_SECONDS_MAX)
    except (OSError, ValueError, http.client.HTTPException):
        return Finding("SKIP", "image", "the engine does not answer")  # a finding of its own
    if status == http.client.OK:
        return Finding("PASS", "image", f"{name} is pulled when the agent starts")
    why = str(answer.get("message", status))[:200]
    fix = (
        f"docker pull {name}; where no registry has it, build it in a clone of the source: docker build "
        f"-f runtimes/images/Dockerfile.train -t {name} . ; or name another: --train-image"
    )
    return Finding("FIX", "image", f"{name} is not here and cannot be pulled: {why}", fix)
