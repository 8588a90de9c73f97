"""Whether this node can serve models now, looked at again and again: an image may come, an environment may change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from provider_agent.errors import AgentError
from provider_agent.porter import Porter
from provider_agent.protocol import DeviceKind

LOOK_SECONDS: Final = 300.0
FIRST_LOOK_SECONDS_MAX: Final = 5.0  # a registry that is slow to answer holds up no start

log = logging.getLogger(__name__)


async def look_before_start(porter: Porter) -> None:
    """So that the first facts say it already, where that takes no time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_LOOK_SECONDS_MAX):
            await look(porter)


async def keep_looking(porter: Porter) -> None:
    """Until cancelled."""
    while True:
        await look(porter)
        await asyncio.sleep(LOOK_SECONDS)


async def look(porter: Porter) -> None:
    """What changed is told with the next facts."""
    has_gpus = any(device.kind is DeviceKind.GPU for device in porter.devices.values())
    try:
        why = await porter.executor.why_no_serving(porter.config.serve_image, has_gpus=has_gpus)
    except (AgentError, OSError) as error:
        why = str(error)
    if why == porter.why_no_serving:
        return
    porter.why_no_serving, porter.facts_changed = why, True
    if why:
        log.warning("This node serves no models: %s", why)
    else:
        log.info("This node serves models.")
