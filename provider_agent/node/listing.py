"""Waits until the marketplace itself lists this node for rent, and returns its page."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

import httpx

from provider_agent.config import DataFolder, load_config
from provider_agent.errors import NotListed

POLL_SECONDS = 1.0
HTTP_SECONDS_MAX = 10.0
REPEAT_SECONDS = 60.0  # a state that does not change is printed again


def page_of(folder: DataFolder) -> str:
    """The node's page, for everybody to see."""
    config = load_config(folder)
    return f"{config.server}/nodes/{config.node_id}"


async def wait_until_listed(folder: DataFolder, *, seconds: float, print_line: Callable[[str], None]) -> str:
    """The node's page once it is for rent; raises NotListed, with the agent's last error, after `seconds`."""
    page, until, printed = page_of(folder), time.monotonic() + seconds, ""
    since = printed_at = 0.0
    async with httpx.AsyncClient(timeout=HTTP_SECONDS_MAX) as http:
        while True:
            state = await _ask(http, f"{page}.json")
            if state == "listed":
                return page
            now = time.monotonic()
            if state != printed or now >= printed_at + REPEAT_SECONDS:
                again = (
                    ""
                    if state != printed
                    else f", since {now - since:.0f} s; why so long: souk-agent logs, souk-agent doctor"
                )
                since = since if state == printed else now
                print_line(state + again)
                printed, printed_at = state, now
            if time.monotonic() > until:
                raise NotListed(f"Not listed after {seconds:.0f} s: {state}{_last_error(folder)}")
            await asyncio.sleep(POLL_SECONDS)


async def _ask(http: httpx.AsyncClient, url: str) -> str:
    try:
        answer = await http.get(url)
        seen = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        return f"the marketplace does not answer ({type(error).__name__})"
    if seen.get("is_listed"):
        return "listed"
    return {
        "pending": "the agent is measuring the devices",
        "online": "the agent is measuring the devices",
    }.get(str(seen.get("state")), f"the node is {seen.get('state')}")


def _last_error(folder: DataFolder) -> str:
    try:
        error = json.loads(folder.status.read_text()).get("last_error")
    except (OSError, ValueError):
        return "; the agent has not reached the marketplace yet: souk-agent doctor"
    return f"; the agent's last error: {error}" if error else ""
