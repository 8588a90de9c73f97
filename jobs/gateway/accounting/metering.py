"""Every `Used` becomes one row of use, priced, counted against its key and handed to the spool at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from uuid import UUID

from jobs.gateway.accounting.limits import MICROS, Limits, cost_usd_picos, is_foreign
from jobs.gateway.accounting.segments import Line
from jobs.gateway.accounting.spool import Spool
from jobs.gateway.inference_request import Used

MODELS_CACHED = 4_096
IDS_CACHED = 16_384
FOREIGN = "!"  # behind the key of a row that is paid to another organisation


class Metering:
    """A `Meter`: never raises, never waits."""

    def __init__(self, spool: Spool, limits: Limits, clock: Callable[[], float] = time.time) -> None:
        self._spool, self._limits, self._clock = spool, limits, clock

    def __call__(self, used: Used) -> None:
        """Price it, count it, keep it."""
        request = used.request
        endpoint, grant = request.endpoint, request.grant
        input_tokens, output_tokens = max(0, used.input_tokens), max(0, used.output_tokens)
        picos = cost_usd_picos(endpoint, input_tokens, output_tokens)
        cost = -(-picos // MICROS)
        foreign = is_foreign(grant, endpoint)
        self._limits.spend(grant.key_id, input_tokens + output_tokens, cost, foreign=foreign)
        key = _text(grant.key_id)
        lease = "null" if used.lease_id is None else f'"{_text(used.lease_id)}"'
        first = "null" if used.first_token_ms is None else str(used.first_token_ms)
        # Written by hand: pydantic or json.dumps would take most of the time that metering has (benchmarks/gateway.py).
        rest = (
            f'"request_id":"{request.request_id}","part":{used.part},"key_id":"{key}",'
            f'"organisation_id":"{_text(grant.organisation_id)}","endpoint_id":"{_text(endpoint.endpoint_id)}",'
            f'"version":{used.version},"lease_id":{lease},"model":{_quoted(endpoint.model)},"kind":"{request.kind}",'
            f'"status":"{used.status}","input_tokens":{input_tokens},"cached_tokens":{max(0, used.cached_tokens)},'
            f'"output_tokens":{output_tokens},"is_reported":{"true" if used.is_reported else "false"},'
            f'"cost_usd_micros":{cost},"cost_usd_picos":{picos},"at_ms":{int(self._clock() * 1000)},'
            f'"queue_ms":{used.queue_ms},"first_token_ms":{first},"total_ms":{used.total_ms}}}'
        )
        self._spool.append(key + FOREIGN if foreign else key, cost, rest.encode())


def acknowledge(lines: Iterable[Line], limits: Limits) -> None:
    """The marketplace has these rows. Summed by key first: there are thousands of rows, and the event loop waits."""
    costs: dict[str, int] = {}
    for line in lines:
        costs[line.key] = costs.get(line.key, 0) + line.cost
    for key, cost in costs.items():
        limits.acknowledge(UUID(key.removesuffix(FOREIGN)), cost, foreign=key.endswith(FOREIGN))


def row_json(line: Line) -> bytes:
    """A kept row as JSON of a UsageRow, under its number."""
    return b'{"seq":%d,%s' % (line.seq, line.rest)


@lru_cache(MODELS_CACHED)
def _quoted(model: str) -> str:
    return json.dumps(model)


@lru_cache(IDS_CACHED)
def _text(id: UUID) -> str:
    """Of what many rows name: a UUID makes its text anew each time, slowly."""
    return str(id)
