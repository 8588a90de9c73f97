"""A moment beyond Python's calendar, in one row, must not make a whole query fail.

PostgreSQL's calendar goes on after the year 9999, and has infinity; psycopg raises DataError for either, and the query
fails for all of its rows. Nothing of the sort is let in (`provider_agent.protocol.bounds`, and constraints in the
database). Should such a row be there all the same, it is read with the last moment that the marketplace knows, or with
the first, and costs itself alone.
"""

from __future__ import annotations

from datetime import datetime, tzinfo
from functools import cache
from typing import Any

from django.db.backends.postgresql import base
from django.db.backends.postgresql.psycopg_any import BaseTzLoader
from psycopg import DataError
from psycopg.adapt import AdaptersMap

from provider_agent.protocol import MOMENT_FIRST, MOMENT_LAST

_EARLY = (b"-", b" BC")  # how PostgreSQL writes "-infinity" and years before Christ


class DatabaseWrapper(base.DatabaseWrapper):
    """Its connections read every moment."""

    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        return params | {"context": _adapters(params["context"], self.timezone)}


@cache
def _adapters(known: AdaptersMap, zone: tzinfo | None) -> AdaptersMap:
    class Loader(BaseTzLoader):  # type: ignore[misc]  # the stubs have it as Any
        timezone = zone

        def load(self, data: bytes | bytearray | memoryview) -> datetime:
            try:
                return super().load(data)  # type: ignore[no-any-return]
            except DataError:
                text = bytes(data)
                moment = MOMENT_FIRST if text.startswith(_EARLY[0]) or text.endswith(_EARLY[1]) else MOMENT_LAST
                return moment.astimezone(zone) if zone else moment.replace(tzinfo=None)

    adapters = AdaptersMap(known)
    adapters.register_loader("timestamptz", Loader)
    return adapters
