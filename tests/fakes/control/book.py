"""The state of the fake marketplace, and the reports that it received."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from uuid import UUID

from jobs.gateway.messages import GatewayAnswer, GatewaySync, KeyAnswer, KeyGrant, KeyQuestion, Table, UsageRow
from tests.fakes.control.rows import GRANT_SECONDS

ROWS_KEPT_MAX = 200_000


@dataclass
class Book:
    """`taken`: rows by gateway and number, each once. `problems`: what a gateway should never have sent."""

    table: Table = field(default_factory=Table)
    version: int = 1
    grants: dict[str, KeyGrant] = field(default_factory=dict)  # by the key's hash
    gateways: dict[UUID, GatewaySync] = field(default_factory=dict)  # their newest word, without use
    usage_seq: dict[UUID, int] = field(default_factory=dict)
    rows: deque[UsageRow] = field(default_factory=lambda: deque(maxlen=ROWS_KEPT_MAX))
    rows_taken: int = 0
    rows_again: int = 0  # sent once more, which is allowed
    problems: list[str] = field(default_factory=list)
    is_down: bool = False

    def set_table(self, table: Table) -> None:
        """From the next sync on this is what is served."""
        self.table, self.version = table, self.version + 1

    def set_grants(self, grants: list[KeyGrant]) -> None:
        """These keys exist, and no other."""
        self.grants = {grant.key_hash: grant for grant in grants}

    def sync(self, report: GatewaySync) -> GatewayAnswer:
        """One exchange."""
        self.gateways[report.gateway_id] = report.model_copy(update={"usage": []})
        self._take(report)
        return GatewayAnswer(
            version=str(self.version),
            table=self.table if report.known != str(self.version) else None,
            grants=[self._fresh(grant) for grant in self.grants.values() if grant.key_id in report.keys],
            usage_seq=self.usage_seq.get(report.gateway_id, 0),
        )

    def keys(self, request: KeyQuestion) -> KeyAnswer:
        """Whose they are."""
        known = [self.grants[key_hash] for key_hash in request.key_hashes if key_hash in self.grants]
        return KeyAnswer(grants=[self._fresh(grant) for grant in known])

    def _fresh(self, grant: KeyGrant) -> KeyGrant:
        return grant.model_copy(update={"expires_at_ms": int(1000 * (time.time() + GRANT_SECONDS))})

    def _take(self, report: GatewaySync) -> None:
        newest = self.usage_seq.get(report.gateway_id, 0)
        for row in report.usage:
            if row.seq <= newest:
                self.rows_again += 1
            elif row.seq > newest + 1:
                self.problems.append(f"{report.gateway_id}: row {row.seq} came after {newest}")
                break
            else:
                newest = row.seq
                self.rows.append(row)
                self.rows_taken += 1
        self.usage_seq[report.gateway_id] = newest
