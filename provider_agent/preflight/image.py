"""The images that measure, train and serve: without the first, a node with containers is never listed."""

from __future__ import annotations

import http.client
from typing import Final, NamedTuple
from urllib.parse import quote

from provider_agent.images import SERVE_IMAGE, TRAIN_IMAGE
from provider_agent.preflight.containers import ask_engine, engine_socket
from provider_agent.preflight.finding import Finding

REGISTRY_SECONDS_MAX: Final = 10.0


class Way(NamedTuple):
    """Where one of our images comes from, when, and by which option another takes its place."""

    build: str
    option: str
    moment: str


_TRAINS: Final = Way("-f runtimes/images/Dockerfile.train", "--train-image", "when the agent starts")
_SERVES: Final = Way(
    "-f runtimes/images/Dockerfile.serve --target plain", "--serve-image", "before the first model is served"
)


def check_image(executor: str, name: str = "", *, url: str = "") -> Finding:
    """Whether the engine has the image that measures and trains, or its registry does."""
    if executor != "docker":
        return Finding("SKIP", "image", "processes run in an environment of the agent's")
    return find_image(name or TRAIN_IMAGE, _TRAINS, url=url)


def check_serve_image(name: str = "", *, url: str = "") -> Finding:
    """The same of the image that serves."""
    return find_image(name or SERVE_IMAGE, _SERVES, url=url)


def find_image(name: str, way: Way, *, url: str = "") -> Finding:
    """Whether it is here, or can be had; else how it is made or another is named."""
    path = engine_socket(url)
    if path is None:
        return Finding("SKIP", "image", f"{name} is looked for {way.moment}")
    path_name = quote(name, safe="/:@")
    try:
        status, _ = ask_engine(path, f"/images/{path_name}/json")
        if status == http.client.OK:
            return Finding("PASS", "image", f"{name} is here")
        status, answer = ask_engine(path, f"/distribution/{path_name}/json", seconds=REGISTRY_SECONDS_MAX)
    except (OSError, ValueError, http.client.HTTPException):
        return Finding("SKIP", "image", "the engine does not answer")  # a finding of its own
    if status == http.client.OK:
        return Finding("PASS", "image", f"{name} is pulled {way.moment}")
    why = str(answer.get("message", status))[:200]
    fix = (
        f"docker pull {name}; where no registry has it, build it in a clone of the source: docker build "
        f"{way.build} -t {name} . ; or name another: {way.option}"
    )
    return Finding("FIX", "image", f"{name} is not here and cannot be pulled: {why}", fix)
