"""Key grants by the SHA-256 of the key: looked up at the marketplace once, in batches, and cached.

A grant that was confirmed within CONFIRMED_SECONDS answers at once. An older one is looked up again first; if the
marketplace cannot be reached, it counts until GRACE_SECONDS after its end, and keys that are not known get a 503.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import sha256
from uuid import UUID

from jobs.gateway.errors import ApiError
from jobs.gateway.messages import KEYS_MAX, KeyGrant

GRANTS_MAX = 100_000
UNKNOWN_MAX = 10_000
UNKNOWN_SECONDS = 5.0  # for so long an unknown key is not looked up again
LOOKUPS_MAX = 2_000  # keys that wait for an answer
LOOKUP_SECONDS_MAX = 5.0
CONFIRMED_SECONDS = 30.0
ACTIVE_SECONDS = 60.0  # a key that was used so lately is named in each sync: revoked is revoked within one
GRACE_SECONDS = 600.0
AWAY_SECONDS = 10.0  # so long after a failure nobody who is known waits for the marketplace
RENEW_SECONDS_MIN = 1.0  # between two look-ups of a key whose budget slice is used up
_KEY = re.compile(r"sk-souk-[A-Za-z0-9_-]{20,200}")

LookUp = Callable[[Sequence[str]], Awaitable[list[KeyGrant]]]  # raises Unreachable


class Unreachable(Exception):
    """The marketplace does not answer now."""


class Entry:
    """One key as it is known here. Times are the monotonic clock's."""

    __slots__ = ("confirmed_at", "grant", "used_at")

    def __init__(self, grant: KeyGrant, confirmed_at: float) -> None:
        self.grant, self.confirmed_at, self.used_at = grant, confirmed_at, confirmed_at


class KeyGrants:
    """A bounded cache; `on_grant` gets each new grant before it is used."""

    def __init__(
        self, ask: LookUp, on_grant: Callable[[KeyGrant], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look_up_keys, self._on_grant, self._clock = ask, on_grant, clock
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._hash_of: dict[UUID, str] = {}
        self._unknown: OrderedDict[str, float] = OrderedDict()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._pending: list[str] = []
        self._look_up_task: asyncio.Task[None] | None = None
        self._away_until = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    async def holder(self, key: str) -> KeyGrant:
        """The grant of a key's holder. Raises ApiError: 401 for a wrong or revoked key, 429, 503."""
        if not _KEY.fullmatch(key):
            raise _wrong_key()
        key_hash = sha256(key.encode()).hexdigest()
        entry = self._entries.get(key_hash)
        now = self._clock()
        if entry is None or not self._is_fresh(entry, now):
            entry = await self._fresh_entry(key_hash)
        entry.used_at = now
        if entry.grant.refused:
            raise _refused(entry.grant.refused)
        return entry.grant

    async def renew(self, grant: KeyGrant) -> KeyGrant:
        """A grant as the marketplace has it now, when the known one's budget is used up; one look-up a second at most.

        Raises ApiError as `holder` does.
        """
        entry = self._entries.get(grant.key_hash)
        if entry is None or self._clock() - entry.confirmed_at >= RENEW_SECONDS_MIN:
            entry = await self._fresh_entry(grant.key_hash)
        if entry.grant.refused:
            raise _refused(entry.grant.refused)
        return entry.grant

    def put(self, grants: Iterable[KeyGrant]) -> None:
        """The marketplace's newest grants of these keys."""
        now = self._clock()
        for grant in grants:
            entry = self._entries.get(grant.key_hash)
            if entry is None:
                entry = self._entries[grant.key_hash] = Entry(grant, now)
                entry.used_at = now - ACTIVE_SECONDS
            entry.grant, entry.confirmed_at = grant, now
            self._entries.move_to_end(grant.key_hash)
            self._hash_of[grant.key_id] = grant.key_hash
            self._unknown.pop(grant.key_hash, None)
            self._on_grant(grant)
        while len(self._entries) > GRANTS_MAX:
            _, dropped = self._entries.popitem(last=False)
            self._hash_of.pop(dropped.grant.key_id, None)

    def active(self) -> list[UUID]:
        """Keys in use, to be confirmed by the next sync: those whose confirmation is oldest first."""
        since = self._clock() - ACTIVE_SECONDS
        used = [entry for entry in self._entries.values() if entry.used_at > since]
        used.sort(key=lambda entry: entry.confirmed_at)
        return [entry.grant.key_id for entry in used[:KEYS_MAX]]

    def note_reached(self, is_reached: bool) -> None:
        """Whether the marketplace answered just now."""
        self._away_until = 0.0 if is_reached else self._clock() + AWAY_SECONDS

    def kept(self) -> list[KeyGrant]:
        """All, for a restart while the marketplace is away."""
        return [entry.grant for entry in self._entries.values()]

    def restore(self, grants: Iterable[KeyGrant]) -> None:
        """What was kept: valid only where the marketplace cannot be reached."""
        long_ago = self._clock() - CONFIRMED_SECONDS - ACTIVE_SECONDS
        self.put(grants)
        for entry in self._entries.values():
            entry.confirmed_at = entry.used_at = long_ago

    def _is_fresh(self, entry: Entry, now: float) -> bool:
        return now - entry.confirmed_at < CONFIRMED_SECONDS and time.time() * 1000 < entry.grant.expires_at_ms

    async def _fresh_entry(self, key_hash: str) -> Entry:
        if self._unknown.get(key_hash, 0.0) > self._clock():
            raise _wrong_key()
        entry = self._in_grace(key_hash)
        if entry is not None and self._clock() < self._away_until:
            return entry
        try:
            await self._await_look_up(key_hash)
        except Unreachable:
            entry = self._in_grace(key_hash)
            if entry is not None:
                return entry
            raise ApiError(
                503,
                "control_plane_unavailable",
                "Your key cannot be checked at this moment; please try again.",
                type="server_error",
                retry_after=5,
            ) from None
        entry = self._entries.get(key_hash)
        if entry is None:
            raise _wrong_key()
        return entry

    def _in_grace(self, key_hash: str) -> Entry | None:
        entry = self._entries.get(key_hash)
        is_over = entry is None or time.time() > entry.grant.expires_at_ms / 1000 + GRACE_SECONDS
        return None if is_over else entry

    async def _await_look_up(self, key_hash: str) -> None:
        """Returns when the marketplace has answered about a key; concurrent look-ups of one key share the answer.

        Raises Unreachable.
        """
        waiting = self._waiting.get(key_hash)
        if waiting is None:
            if len(self._waiting) >= LOOKUPS_MAX:
                raise Unreachable
            waiting = self._waiting[key_hash] = asyncio.get_running_loop().create_future()
            self._pending.append(key_hash)
            if self._look_up_task is None or self._look_up_task.done():
                self._look_up_task = asyncio.create_task(self._look_up_pending())
        try:
            await asyncio.wait_for(asyncio.shield(waiting), LOOKUP_SECONDS_MAX)
        except TimeoutError:
            raise Unreachable from None

    async def _look_up_pending(self) -> None:
        """One question at a time; what comes meanwhile goes with the next one."""
        while self._pending:
            batch, self._pending = self._pending[:KEYS_MAX], self._pending[KEYS_MAX:]
            failure: Unreachable | None = None
            try:
                self.put(await self._look_up_keys(batch))
                self._remember_unknown(key_hash for key_hash in batch if not self._knows_newly(key_hash))
            except Exception as error:
                failure = error if isinstance(error, Unreachable) else Unreachable()
            self.note_reached(failure is None)
            for key_hash in batch:
                waiting = self._waiting.pop(key_hash)
                if failure is None:
                    waiting.set_result(None)
                else:
                    waiting.set_exception(failure)
                    waiting.exception()  # the caller may be gone

    def _knows_newly(self, key_hash: str) -> bool:
        """Whether the answer that just came had this key; one that it no longer has is forgotten."""
        entry = self._entries.get(key_hash)
        if entry is not None and self._clock() - entry.confirmed_at > LOOKUP_SECONDS_MAX:
            del self._entries[key_hash]
            self._hash_of.pop(entry.grant.key_id, None)
            entry = None
        return entry is not None

    def _remember_unknown(self, key_hashes: Iterable[str]) -> None:
        until = self._clock() + UNKNOWN_SECONDS
        for key_hash in key_hashes:
            self._unknown[key_hash] = until
            self._unknown.move_to_end(key_hash)
        while len(self._unknown) > UNKNOWN_MAX:
            self._unknown.popitem(last=False)


def _wrong_key() -> ApiError:
    return ApiError(401, "invalid_api_key", "Incorrect API key provided.")


def _refused(why: str) -> ApiError:
    if why in {"budget_exhausted", "no_money"}:
        return out_of_budget()
    if why == "spend_limit":
        return out_of_limit()
    return ApiError(401, "invalid_api_key", f"This API key is no longer valid ({why}).")


def out_of_limit() -> ApiError:
    """Of who pays for the key, or of the member who made it."""
    return ApiError(
        429,
        "insufficient_quota",
        "The spend limit of the organisation that pays for this key, or of the member who made it, is used up: an owner"
        " can raise it (POST /api/v1/spend-limits).",
        type="insufficient_quota",
    )


def out_of_budget() -> ApiError:
    """Of the key, or of who pays for it."""
    return ApiError(
        429,
        "insufficient_quota",
        "The budget of this key, or the balance or spend limit of the organisation or member that pays for it, does not"
        " allow this request.",
        type="insufficient_quota",
    )
