"""Control-plane sync: the gateway reports to the marketplace each second, and looks up keys there.

1. What is counted and durable goes out, with load, replicas and keys in use.
2. The answer's table, where it is a new one, replaces the known one; grants are renewed; rows of use are forgotten.
3. A full batch of rows, or somebody who waits for a replica (`wake`), brings the next sync at once.
4. While the marketplace is away the gateway continues with what it knows, also after a restart (`known.json`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

import aiohttp
from pydantic import ValidationError

from jobs.gateway.accounting.key_grants import KeyGrants, Unreachable
from jobs.gateway.accounting.limits import Limits
from jobs.gateway.accounting.metering import acknowledge, row_json
from jobs.gateway.accounting.segments import Line
from jobs.gateway.accounting.spool import Spool
from jobs.gateway.config import GatewayConfig, Identity
from jobs.gateway.messages import (
    KEYS_PATH,
    SYNC_BODY_BYTES_MAX,
    SYNC_PATH,
    USAGE_ROWS_MAX,
    AuditRow,
    EndpointLoad,
    GatewayAnswer,
    GatewaySync,
    KeyAnswer,
    KeyGrant,
    KeyQuestion,
    ReplicaLoad,
    ReplicaRow,
    Row,
    Table,
)
from jobs.gateway.routing.directory import Directory
from provider_agent.protocol.backoff import FULL_JITTER, backoff_seconds

SYNC_SECONDS = 1.0
SYNC_SECONDS_MIN = 0.05  # between two syncs, however often it is woken
SYNC_ANSWER_SECONDS_MAX = 10.0
KEYS_ANSWER_SECONDS_MAX = 3.0
BACKOFF_SECONDS_MAX = 10.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
USAGE_BYTES_MAX = SYNC_BODY_BYTES_MAX // 2  # the rest is for loads
AUDITS_MAX = USAGE_ROWS_MAX
KEEP_SECONDS = 10.0  # between two writings of known.json
SWEEP_SECONDS = 60.0

logger = logging.getLogger(__name__)


class Known(Row):
    """What survives a restart."""

    version: str
    table: Table
    grants: list[KeyGrant]


class ControlPlaneSync:
    """One loop. Set `loads`, `replica_loads`, `take_audits` and `on_table` before `start`."""

    def __init__(
        self, config: GatewayConfig, identity: Identity, directory: Directory, limits: Limits, spool: Spool
    ) -> None:
        self._config, self._identity = config, identity
        self._directory, self._limits, self._spool = directory, limits, spool
        self.grants = KeyGrants(self.look_up_keys, limits.renew)
        self.loads: Callable[[], list[EndpointLoad]] = list
        self.replica_loads: Callable[[], list[ReplicaLoad]] = list
        self.take_audits: Callable[[], Sequence[AuditRow]] = tuple
        self.on_table: Callable[[Sequence[ReplicaRow]], None] = lambda rows: None
        self.synced_at: float | None = None  # event loop's clock
        self.failures = 0  # syncs in a row
        self._boot_id = uuid4()
        self._table = Table()
        self._unsent: dict[UUID, EndpointLoad] = {}  # what was not delivered to the marketplace yet
        self._unsent_replicas: dict[UUID, ReplicaLoad] = {}
        self._audits: list[AuditRow] = []
        self._woken = asyncio.Event()
        self._is_closing = False
        self._kept_at = self._swept_at = time.monotonic()
        self._session: aiohttp.ClientSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._file = config.data / "known.json"

    async def start(self) -> None:
        """Begin with the stored state, then sync."""
        known = await asyncio.to_thread(_read_known, self._file)
        if known is not None:
            self._take_table(known.version, known.table)
            self.grants.restore(known.grants)
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._config.token}"}, connector=aiohttp.TCPConnector(limit=4)
        )
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Send what was not sent yet, once, and stop."""
        self._is_closing = True
        self._woken.set()
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task
        with suppress(Unreachable):
            await self._sync()
        if self._session is not None:
            await self._session.close()
        await asyncio.to_thread(_write_known, self._file, self._known())

    def wake(self, endpoint_id: UUID | None = None) -> None:
        """Somebody waits (for an endpoint): sync at once."""
        self._woken.set()

    async def look_up_keys(self, key_hashes: Sequence[str]) -> list[KeyGrant]:
        """Who holds keys. Raises Unreachable."""
        question = KeyQuestion(gateway_id=self._identity.gateway_id, key_hashes=list(key_hashes))
        answer = await self._post(KEYS_PATH, question.model_dump_json().encode(), KEYS_ANSWER_SECONDS_MAX)
        try:
            return KeyAnswer.model_validate_json(answer).grants
        except ValidationError as error:
            raise Unreachable(
                f"The marketplace's answer about keys is not one: {error.error_count()} errors"
            ) from error

    async def _run(self) -> None:
        while not self._is_closing:
            self._woken.clear()
            try:
                is_more = await self._sync()
                self.failures = 0
            except Unreachable as error:
                is_more, self.failures = False, self.failures + 1
                if self.failures & (self.failures - 1) == 0:  # logged at 1, 2, 4, 8 ... failures
                    logger.warning("The marketplace did not answer (%d in a row): %s", self.failures, error)
            except Exception:
                is_more, self.failures = False, self.failures + 1
                logger.exception("A sync failed.")
            self.grants.note_reached(self.failures == 0)
            await self._maintain()
            await self._pause(is_more)

    async def _pause(self, is_more: bool) -> None:
        if self.failures:
            pause = backoff_seconds(self.failures + 1, first=SYNC_SECONDS, most=BACKOFF_SECONDS_MAX, jitter=FULL_JITTER)
            seconds = max(SYNC_SECONDS / 2, pause)
        else:
            seconds = 0.0 if is_more else SYNC_SECONDS * random.uniform(0.9, 1.1)
        await asyncio.sleep(min(SYNC_SECONDS_MIN, seconds) if is_more else SYNC_SECONDS_MIN)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), max(0.0, seconds - SYNC_SECONDS_MIN))

    async def _sync(self) -> bool:
        """One exchange; whether there is more to send at once. Raises Unreachable; the next one repeats it."""
        self._gather()
        rows = await self._spool.read(USAGE_ROWS_MAX, USAGE_BYTES_MAX)
        audits = self._audits[:AUDITS_MAX]
        answer = self._understood(await self._post(SYNC_PATH, self._message(rows, audits), SYNC_ANSWER_SECONDS_MAX))
        self._unsent.clear()
        self._unsent_replicas.clear()
        del self._audits[: len(audits)]
        await self._spool.acknowledge(answer.usage_seq)
        acknowledge((row for row in rows if row.seq <= answer.usage_seq), self._limits)
        self.grants.put(answer.grants)
        if answer.table is not None:
            self._take_table(answer.version, answer.table)
        self.on_table(self._table.replicas)
        self.synced_at = asyncio.get_running_loop().time()
        return len(rows) == USAGE_ROWS_MAX and answer.usage_seq >= rows[-1].seq

    def _gather(self) -> None:
        """What happened since the last time; added to what was not delivered yet."""
        for load in self.loads():
            unsent = self._unsent.get(load.endpoint_id)
            self._unsent[load.endpoint_id] = load if unsent is None else _added(unsent, load)
        before, self._unsent_replicas = self._unsent_replicas, {}
        for replica in self.replica_loads():
            lease_id = replica.lease_id
            known = before.get(lease_id)
            self._unsent_replicas[lease_id] = replica if known is None else _added_replica(known, replica)
        self._audits = (self._audits + list(self.take_audits()))[-10 * AUDITS_MAX :]

    def _message(self, rows: Sequence[Line], audits: list[AuditRow]) -> bytes:
        sync = GatewaySync(
            gateway_id=self._identity.gateway_id,
            boot_id=self._boot_id,
            url=self._config.url,
            public_key=self._identity.public_key,
            known=self._directory.version,
            loads=list(self._unsent.values()),
            replicas=list(self._unsent_replicas.values()),
            keys=self.grants.active(),
            audits=audits,
        )
        head = sync.model_dump_json(exclude={"usage"}).encode()
        return head[:-1] + b',"usage":[' + b",".join(row_json(row) for row in rows) + b"]}"

    def _understood(self, body: bytes) -> GatewayAnswer:
        try:
            return GatewayAnswer.model_validate_json(body)
        except ValidationError as error:
            raise Unreachable(f"The marketplace's answer is not one: {error.error_count()} errors") from error

    def _take_table(self, version: str, table: Table) -> None:
        self._table = table
        self._directory.swap(version, table)
        self.on_table(table.replicas)

    async def _post(self, path: str, body: bytes, seconds: float) -> bytes:
        if self._session is None:
            raise Unreachable("not started")
        url = self._config.control_url.rstrip("/") + path
        try:
            async with self._session.post(
                url,
                data=body,
                headers={"Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as response:
                if response.status != 200:
                    raise Unreachable(f"{path}: status {response.status}")
                answer = await response.content.read(ANSWER_BYTES_MAX)
                while len(answer) < ANSWER_BYTES_MAX and (more := await response.content.read(ANSWER_BYTES_MAX)):
                    answer += more
                return answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"{path}: {error or type(error).__name__}") from error

    async def _maintain(self) -> None:
        now = time.monotonic()
        if now - self._swept_at > SWEEP_SECONDS:
            self._swept_at = now
            self._limits.sweep()
        if now - self._kept_at > KEEP_SECONDS and self._directory.version:
            self._kept_at = now
            await asyncio.to_thread(_write_known, self._file, self._known())

    def _known(self) -> Known:
        """With each grant's budget as it is now: what was spent is not given out again after a restart."""
        grants = [self._limits.cut(grant) for grant in self.grants.kept()]
        return Known(version=self._directory.version, table=self._table, grants=grants)


def _added(before: EndpointLoad, now: EndpointLoad) -> EndpointLoad:
    return now.model_copy(
        update={
            "queue_seconds_max": max(before.queue_seconds_max, now.queue_seconds_max),
            "arrived": before.arrived + now.arrived,
            "failed": before.failed + now.failed,
            "refused": before.refused + now.refused,
        }
    )


def _added_replica(before: ReplicaLoad, now: ReplicaLoad) -> ReplicaLoad:
    names = ("served", "failed", "input_tokens", "output_tokens")
    return now.model_copy(update={name: getattr(before, name) + getattr(now, name) for name in names})


def _read_known(path: Path) -> Known | None:
    try:
        return Known.model_validate(json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return None


def _write_known(path: Path, known: Known) -> None:
    new = path.with_suffix(".new")
    try:
        new.touch(mode=0o600)
        new.write_text(known.model_dump_json())
        new.rename(path)
    except OSError as error:
        logger.warning("What the gateway knows could not be kept: %s", error)
