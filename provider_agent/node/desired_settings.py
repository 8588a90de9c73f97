"""The settings that the provider wants for this node, sent as signed requests, also while an agent runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from provider_agent.client import Client, with_retries
from provider_agent.config import DataFolder, load_config
from provider_agent.keys import load_keys
from provider_agent.protocol import (
    REASON_CHARACTERS_MAX,
    DrainRequest,
    NodeStanding,
    PriceRequest,
    ResumeRequest,
    Schedule,
)

ATTEMPTS_MAX = 3  # of a person who waits


@asynccontextmanager
async def calling(folder: DataFolder) -> AsyncIterator[Client]:
    """A client for this node's signed requests; raises NotEnrolled."""
    config = load_config(folder)
    client = Client(api_url=config.api_url, node_id=config.node_id, key=load_keys(folder.root).transport)
    try:
        yield client
    finally:
        await client.close()


async def drain(folder: DataFolder, reason: str) -> NodeStanding:
    """Finish what runs, take nothing new."""
    request = DrainRequest(reason=reason[:REASON_CHARACTERS_MAX])
    async with calling(folder) as client:
        return await with_retries(lambda: client.change_standing("drain", request), attempts_max=ATTEMPTS_MAX)


async def resume(folder: DataFolder) -> NodeStanding:
    """Take new work again; this deletes the result of the last self-test, and the order to leave."""
    async with calling(folder) as client:
        standing = await with_retries(
            lambda: client.change_standing("resume", ResumeRequest()), attempts_max=ATTEMPTS_MAX
        )
    folder.self_test.unlink(missing_ok=True)
    folder.leaving.unlink(missing_ok=True)
    return standing


async def change_price(folder: DataFolder, usd_micros: int) -> NodeStanding:
    """Of a device and hour, from the next lease on."""
    request = PriceRequest(price_usd_micros_per_device_hour=usd_micros)
    async with calling(folder) as client:
        return await with_retries(lambda: client.change_standing("price", request), attempts_max=ATTEMPTS_MAX)


async def ask_standing(folder: DataFolder) -> NodeStanding:
    """How the node stands."""
    async with calling(folder) as client:
        return await with_retries(client.standing, attempts_max=ATTEMPTS_MAX)


async def change_schedule(folder: DataFolder, change: Callable[[Schedule], Schedule]) -> Schedule:
    """Read the schedule, change it, send the whole; nothing is sent if nothing changed."""
    async with calling(folder) as client:
        known = await with_retries(client.schedule, attempts_max=ATTEMPTS_MAX)
        wanted = change(known)
        if wanted == known:
            return known
        return await with_retries(lambda: client.schedule(wanted), attempts_max=ATTEMPTS_MAX)
