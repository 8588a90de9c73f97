"""The endpoints that are served now, by every name that a caller may use; swapped whole with each new table."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from jobs.gateway.messages import EndpointRow, KeyGrant, ReplicaRow, Table

MODELS_MAX = 10_000  # listed to one caller


class Directory:
    """An index over the newest Table. Nobody finds an endpoint here that the grant does not let them call."""

    def __init__(self) -> None:
        self.version = ""  # of the table; empty: there was none yet
        self._endpoints: dict[UUID, EndpointRow] = {}
        self._own: dict[tuple[UUID, str], EndpointRow] = {}
        self._public: dict[str, EndpointRow] = {}
        self._replicas: dict[UUID, list[ReplicaRow]] = {}

    def swap(self, version: str, table: Table) -> None:
        """From now on this is what is served."""
        replicas: dict[UUID, list[ReplicaRow]] = {}
        for replica in table.replicas:
            replicas.setdefault(replica.endpoint_id, []).append(replica)
        self._endpoints = {row.endpoint_id: row for row in table.endpoints}
        self._own = {(row.organisation_id, row.model): row for row in table.endpoints}
        self._public = {f"{row.organisation}/{row.model}": row for row in table.endpoints if row.is_public}
        self._replicas, self.version = replicas, version

    def find(self, model: str, grant: KeyGrant) -> EndpointRow | None:
        """The endpoint that a holder of this grant means by a name: their own one first, then `organisation/model`.

        None both for what does not exist and for what they may not call.
        """
        row = self._own.get((grant.organisation_id, model)) or self._public.get(model)
        return row if row is not None and _may_call(grant, row) else None

    def models_for(self, grant: KeyGrant) -> list[tuple[str, EndpointRow]]:
        """Every name that `find` would answer, with what it means; own ones first."""
        own = [(row.model, row) for row in self._endpoints.values() if row.organisation_id == grant.organisation_id]
        names = {name for name, _ in own}
        public = [pair for pair in self._public.items() if pair[0] not in names]
        return [
            (name, row) for name, row in sorted(own, key=_name) + sorted(public, key=_name) if _may_call(grant, row)
        ][:MODELS_MAX]

    def endpoint(self, endpoint_id: UUID) -> EndpointRow | None:
        """By its id, whoever may call it."""
        return self._endpoints.get(endpoint_id)

    def endpoints(self) -> list[EndpointRow]:
        """All."""
        return list(self._endpoints.values())

    def replicas_of(self, endpoint_id: UUID) -> Sequence[ReplicaRow]:
        """Leases behind an endpoint, whether or not they can be reached."""
        return self._replicas.get(endpoint_id, ())


def _may_call(grant: KeyGrant, row: EndpointRow) -> bool:
    is_listed = grant.endpoint_ids is None or row.endpoint_id in grant.endpoint_ids
    return is_listed and (row.is_public or row.organisation_id == grant.organisation_id)


def _name(pair: tuple[str, EndpointRow]) -> str:
    return pair[0]
