"""The gateway and the marketplace part and meet again: nobody is billed twice, and who is known is served."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from jobs.gateway import control_sync
from jobs.gateway.accounting import key_grants
from jobs.gateway.config import ConfigError, open_data
from jobs.gateway.messages import EndpointLoad, ReplicaLoad
from tests.unit.jobs.gateway.conftest import quick_syncs  # noqa: F401 - a fixture
from tests.unit.jobs.gateway.stage import (
    Marketplace,
    chat,
    endpoint_for,
    gateway,
    grant_for,
    key_of,
    stage,
    until,
)


@asynccontextmanager
async def market() -> AsyncIterator[Marketplace]:
    marketplace = Marketplace()
    marketplace.serve(endpoint_for("tiny"))
    marketplace.let(grant_for("alice"))
    async with marketplace.open():
        yield marketplace


def test_while_the_marketplace_is_away_known_keys_are_served_and_unknown_get_503(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as up:
            assert (await up.post(chat())).status == 200
            await until(lambda: len(up.marketplace.usage) == 1)
            up.marketplace.is_away = True
            await until(lambda: up.parts.control.failures)
            assert (await up.post(chat())).status == 200
            answer = await up.post(chat(), key="bob")
            assert (answer.status, answer.code) == (503, "control_plane_unavailable")
            assert len(up.marketplace.usage) == 1
            up.marketplace.is_away = False
            await until(lambda: len(up.marketplace.usage) == 2)

    asyncio.run(scenario())


def test_a_gateway_that_starts_while_the_marketplace_is_away_serves_what_it_knew(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with market() as marketplace:
            async with gateway(marketplace, tmp_path) as up:
                assert (await up.post(chat())).status == 200
            marketplace.is_away = True
            async with gateway(marketplace, tmp_path) as up:
                assert (await up.get("/healthz")).status == 200
                assert (await up.post(chat())).status == 200
                assert len(marketplace.usage) == 1
                marketplace.is_away = False
                await until(lambda: len(marketplace.usage) == 2)
            assert len({sync.gateway_id for sync in marketplace.syncs}) == 1
            assert len({sync.boot_id for sync in marketplace.syncs}) == 2
            assert len({sync.public_key for sync in marketplace.syncs}) == 1

    asyncio.run(scenario())


def test_a_gateway_that_never_received_a_table_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with market() as marketplace:
            marketplace.is_away = True
            async with gateway(marketplace, tmp_path) as up:
                assert (await up.get("/healthz")).status == 503
                assert (await up.post(chat())).code == "server_overloaded"

    asyncio.run(scenario())


def test_what_a_budget_has_left_survives_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with market() as marketplace:
            marketplace.let(grant_for("alice", budget_usd_micros=140))
            async with gateway(marketplace, tmp_path) as up:
                for _ in range(4):
                    assert (await up.post(chat())).status == 200  # 20 each
            marketplace.is_away = True
            async with gateway(marketplace, tmp_path) as up:
                assert (await up.post(chat())).status == 200
                assert (await up.post(chat())).code == "insufficient_quota"

    asyncio.run(scenario())


def test_load_that_could_not_be_reported_is_in_the_next_report(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as up:
            endpoint, lease = up.marketplace.endpoints[0].endpoint_id, up.marketplace.endpoints[1].endpoint_id
            arrived = iter(range(1, 1000))
            counts: list[int] = []

            def loads() -> list[EndpointLoad]:
                counts.append(next(arrived))
                return [
                    EndpointLoad(
                        endpoint_id=endpoint, in_flight=1, queued=0, queue_seconds_max=0, arrived=counts[-1], failed=0
                    )
                ]

            def replica_loads() -> list[ReplicaLoad]:
                return [ReplicaLoad(lease_id=lease, is_ready=True, in_flight=1, served=counts[-1])]

            up.marketplace.is_away = True
            await until(lambda: up.parts.control.failures)
            begun = len(up.marketplace.syncs)
            up.parts.control.loads, up.parts.control.replica_loads = loads, replica_loads
            await until(lambda: len(counts) >= 2)
            up.marketplace.is_away = False
            await until(lambda: len(up.marketplace.syncs) >= begun + 2)
            reported = sum(load.arrived for sync in up.marketplace.syncs[begun:] for load in sync.loads)
            served = sum(load.served for sync in up.marketplace.syncs[begun:] for load in sync.replicas)
            assert reported == served == sum(counts)

    asyncio.run(scenario())


def test_somebody_who_waits_for_a_replica_brings_a_sync_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as up:
            monkeypatch.setattr(control_sync, "SYNC_SECONDS", 60.0)
            syncs = len(up.marketplace.syncs)
            await until(lambda: len(up.marketplace.syncs) > syncs)
            syncs = len(up.marketplace.syncs)
            await asyncio.sleep(0.2)
            up.parts.control.wake(up.marketplace.endpoints[0].endpoint_id)
            await until(lambda: len(up.marketplace.syncs) == syncs + 1, 5)

    asyncio.run(scenario())


def test_much_use_is_reported_in_batches_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_sync, "USAGE_ROWS_MAX", 10)

    async def scenario() -> None:
        async with stage(tmp_path) as up:
            answers = await asyncio.gather(*(up.post(chat()) for _ in range(95)))
            assert {answer.status for answer in answers} == {200}
            await until(lambda: len(up.marketplace.usage) == 95)
            assert [row.seq for row in up.marketplace.usage] == list(range(1, 96))
            assert len({row.request_id for row in up.marketplace.usage}) == 95
            assert max(len(sync.usage) for sync in up.marketplace.syncs) == 10

    asyncio.run(scenario())


def test_a_full_spool_takes_no_requests_rather_than_serve_them_unmetered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as up:
            assert (await up.post(chat())).status == 200
            await until(lambda: up.marketplace.usage)
            up.parts.spool._bytes_max = 1
            up.marketplace.is_away = True
            assert (await up.post(chat())).status == 503
            assert (await up.get("/healthz")).status == 503
            assert len(up.engine.requests) == 1

    asyncio.run(scenario())


def test_a_disk_that_fails_takes_no_requests_until_it_writes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.gateway.accounting.spool.RETRY_SECONDS", 0.1)

    async def scenario() -> None:
        async with stage(tmp_path) as up:
            real = os.fdatasync

            def fail(file: int) -> None:
                raise OSError(28, "No space left on device")

            monkeypatch.setattr(os, "fdatasync", fail)
            assert (await up.post(chat())).status == 200
            await until(lambda: up.parts.spool.trouble)
            assert (await up.post(chat())).status == 503
            monkeypatch.setattr(os, "fdatasync", real)
            await until(lambda: not up.parts.spool.trouble)
            assert (await up.post(chat())).status == 200
            await until(lambda: len(up.marketplace.usage) == 2)

    asyncio.run(scenario())


def test_two_gateways_never_share_a_folder(tmp_path: Path) -> None:
    identity = open_data(tmp_path)
    with pytest.raises(ConfigError, match="Another gateway"):
        open_data(tmp_path)
    os.close(identity.lock)
    assert open_data(tmp_path).gateway_id == identity.gateway_id
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


async def begin(marketplace: Marketplace, data: Path) -> tuple[asyncio.subprocess.Process, str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.unit.jobs.gateway.gateway_child",
        marketplace.url,
        str(data),
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    async with asyncio.timeout(20):
        port = int(await child.stdout.readline())
    return child, f"http://127.0.0.1:{port}"


async def ask(
    session: aiohttp.ClientSession, url: str, *, begun: asyncio.Event | None = None, **fields: object
) -> bytes | None:
    """The answer's body; None where it broke off. `begun` is set when it begins."""
    try:
        async with session.post(
            url + "/v1/chat/completions", json=chat(**fields), headers={"Authorization": f"Bearer {key_of('alice')}"}
        ) as response:
            if begun is not None:
                begun.set()
            return await response.read() if response.status == 200 else None
    except aiohttp.ClientError:
        return None


def test_kill_9_under_load_bills_nothing_twice_and_loses_only_the_last_moment(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with market() as marketplace, aiohttp.ClientSession() as session:
            child, url = await begin(marketplace, tmp_path)
            await until(lambda: len(marketplace.syncs) > 1)
            answered = 0
            for _ in range(10):
                answers = await asyncio.gather(*(ask(session, url) for _ in range(10)))
                answered += sum(answer is not None for answer in answers)
            await asyncio.sleep(1)  # a hundred times GROUP_SECONDS: these are on disk
            on_disk = answered
            under_way = [asyncio.create_task(ask(session, url)) for _ in range(30)]
            await asyncio.sleep(0.005)
            child.send_signal(signal.SIGKILL)
            await child.wait()
            answered += sum(answer is not None for answer in await asyncio.gather(*under_way))

            syncs = len(marketplace.syncs)
            child, url = await begin(marketplace, tmp_path)
            await until(lambda: len(marketplace.syncs) > syncs + 1)
            assert await ask(session, url) is not None
            child.terminate()
            assert await child.wait() == 0
            rows = marketplace.usage
            assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
            assert len({row.request_id for row in rows}) == len(rows), "none twice"
            assert on_disk <= len(rows) <= answered + 31

    asyncio.run(scenario())


def test_a_gateway_that_is_stopped_ends_its_answers_and_reports_the_last_use(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with market() as marketplace, aiohttp.ClientSession() as session:
            child, url = await begin(marketplace, tmp_path)
            await until(lambda: len(marketplace.syncs) > 1)
            begun = asyncio.Event()
            streams = [
                asyncio.create_task(ask(session, url, begun=begun, stream=True, max_tokens=4000)) for _ in range(20)
            ]
            async with asyncio.timeout(20):
                await begun.wait()
            child.terminate()
            answers = await asyncio.gather(*streams)
            assert await child.wait() == 0
            whole = [answer for answer in answers if answer is not None]
            assert all(answer.count(b"data: ") == 4000 for answer in whole)
            assert len(whole) == len(marketplace.usage) > 0

    asyncio.run(scenario())


def test_a_restored_grant_is_only_good_while_nobody_can_be_asked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with market() as marketplace:
            async with gateway(marketplace, tmp_path) as up:
                assert (await up.post(chat())).status == 200
            marketplace.let(grant_for("alice", refused="revoked"))
            async with gateway(marketplace, tmp_path) as up:
                assert (await up.post(chat())).status == 401
                assert key_grants.GRACE_SECONDS > 0

    asyncio.run(scenario())
