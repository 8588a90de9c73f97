"""Whether this node can serve and evaluate models now, looked at again and again: images and environments change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from provider_agent.context import AgentContext
from provider_agent.errors import AgentError
from provider_agent.protocol import DeviceKind

POLL_SECONDS: Final = 300.0
FIRST_POLL_SECONDS_MAX: Final = 5.0  # a registry that is slow to answer must not delay the start

log = logging.getLogger(__name__)


async def look_before_start(context: AgentContext) -> None:
    """Look once within FIRST_POLL_SECONDS_MAX, so that the first facts have the result."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_POLL_SECONDS_MAX):
            await look(context)


async def keep_looking(context: AgentContext) -> None:
    """Until cancelled."""
    while True:
        await look(context)
        await asyncio.sleep(POLL_SECONDS)


async def look(context: AgentContext) -> None:
    """Look once; a change is sent with the next facts."""
    await _look_at_evaluation(context)
    has_gpus = any(device.kind is DeviceKind.GPU for device in context.devices.values())
    try:
        why = await context.executor.why_no_serving(context.config.serve_image, has_gpus=has_gpus)
    except (AgentError, OSError) as error:
        why = str(error)
    if why == context.why_no_serving:
        return
    context.why_no_serving, context.facts_changed = why, True
    if why:
        log.warning("This node serves no models: %s", why)
    else:
        log.info("This node serves models.")


async def _look_at_evaluation(context: AgentContext) -> None:
    try:
        why = await context.executor.why_no_evaluation(context.config.train_image)
    except (AgentError, OSError) as error:
        why = str(error)
    if why == context.why_no_evaluation:
        return
    context.why_no_evaluation, context.facts_changed = why, True
    log.info("This node evaluates no models: %s" if why else "This node evaluates models.%s", why)
