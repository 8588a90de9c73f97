"""Alice serves a model, Carol's organisation calls it, a gateway counts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from jobs.endpoints import keys, payments
from jobs.gateway.messages import KeyGrant, UsageRow
from jobs.leases import leasing
from jobs.models import (
    Attempt,
    Endpoint,
    EndpointKey,
    EndpointVersion,
    Gateway,
    Job,
    Lease,
    LeaseDevice,
    Quote,
    Replica,
)
from jobs.spec import canonical, from_wire
from jobs.spec.canonical import spec_hash
from jobs.states import JobState, VersionState
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, charge
from tests import stage
from tests.row_states import create_in_state, put_in_state
from tests.stage import DOLLAR

SERVE: dict[str, Any] = {
    "kind": "serve",
    "name": "chat",
    "resources": {"gpus": 1, "kind": "any"},
    "budget": {"max_total": "20.00"},
    "network": "public",
    "serve": {
        "model": {"hub": "org/tiny"},
        "public": True,
        "prices": {"input_per_million": "1.00", "output_per_million": "2.00"},
    },
}


def serving_job(alice: Organisation, *, cap: int = 20 * DOLLAR, replicas: int = 1, **serve: Any) -> Job:
    """A queued serving job, with its quote."""
    body = {**SERVE, "budget": {"max_total": f"{cap / DOLLAR:.2f}"}}
    body["serve"] = {**SERVE["serve"], "replicas": {"min": 1, "max": replicas}, **serve}
    spec = from_wire(body)
    quote = Quote.objects.create(
        organisation=alice,
        spec=canonical(spec),
        spec_hash=spec_hash(spec),
        price_ceiling_usd_micros=DOLLAR,
        expected_usd_micros=cap,
        expected_seconds=None,
        cap_usd_micros=cap,
        asset_id=1,
        plan={},
        signature="",
        expires_at=clock.now() + timedelta(hours=1),
    )
    return Job.objects.create(
        organisation=alice,
        quote=quote,
        name=spec.name,
        kind=spec.kind,
        spec=canonical(spec),
        spec_hash=quote.spec_hash,
        price_ceiling_usd_micros=DOLLAR,
        cap_usd_micros=cap,
        queued_at=clock.now(),
    )


def endpoint(alice: Organisation, *, model: str = "chat", **serve: Any) -> Endpoint:
    """An open endpoint of hers with one live version; public, at a dollar and two for a million tokens."""
    job = serving_job(alice, **serve)
    made = Endpoint.objects.create(job=job, organisation=alice, model=model)
    create_in_state(EndpointVersion, VersionState.LIVE, endpoint=made, number=1, spec=job.spec, share=100)
    return made


def gateway() -> UUID:
    """A gateway that reported a moment ago."""
    return Gateway.objects.create(id=uuid4(), boot_id=uuid4(), seen_at=clock.now()).pk


def key(
    organisation: Organisation,
    *,
    endpoint_ids: Sequence[UUID] | None = None,
    expires_at: datetime | None = None,
    **limits: Any,
) -> EndpointKey:
    """A key of theirs."""
    return keys.issue(
        organisation=organisation,
        user=organisation.members.first(),
        name="program",
        endpoint_ids=endpoint_ids,
        expires_at=expires_at,
        limits=keys.KeyLimits(**limits),
    )[0]


def grant(gateway_id: UUID, key: EndpointKey) -> KeyGrant:
    """The gateway's grant of one key."""
    [given] = keys.key_grants_for(gateway_id, key_ids=[key.pk])
    return given


def row(seq: int, key: EndpointKey, endpoint: Endpoint, **more: Any) -> UsageRow:
    """A million tokens read and a million written: three dollars."""
    fields: dict[str, Any] = {
        "request_id": uuid4(),
        "version": 1,
        "lease_id": None,
        "model": endpoint.model,
        "kind": "chat",
        "status": "ok",
        "input_tokens": 1_000_000,
        "output_tokens": 1_000_000,
        "cost_usd_micros": 3 * DOLLAR,
        "at_ms": int(clock.now().timestamp() * 1000),
    }
    return UsageRow(
        seq=seq,
        key_id=key.pk,
        organisation_id=key.organisation_id,
        endpoint_id=endpoint.pk,
        **(fields | more),
    )


def run(job: Job, endpoint: Endpoint, node: Node, *, cap: int | None = None, rate: int = DOLLAR) -> Lease:
    """A replica of the endpoint that runs on this node, at a dollar an hour."""
    number = job.attempts.count() + 1
    attempt = Attempt.objects.create(job=job, number=number, slot=number)
    price = leasing.LeasePrice(
        price_usd_micros=rate,
        cap_usd_micros=cap if cap is not None else payments.lease_cap(job, rate, replicas_max=1),
        asset=job.quote.asset,
        rate_units_per_hour=rate,
        cap_units=cap if cap is not None else payments.lease_cap(job, rate, replicas_max=1),
    )
    lease = leasing.reserve(attempt, node.offers.get(), list(node.devices.all()[:1]), node_rank=0, price=price)
    Replica.objects.create(endpoint=endpoint, version=endpoint.versions.get(), attempt=attempt)
    put_in_state(Job.objects.filter(pk=job.pk), JobState.RUNNING, running_at=clock.now())
    put_in_state(Attempt.objects.filter(pk=attempt.pk), AttemptState.RUNNING, running_at=clock.now())
    put_in_state(Lease.objects.filter(pk=lease.pk), "active", reported_state=AttemptState.RUNNING)
    job.refresh_from_db()
    return Lease.objects.select_related("attempt__job", "node__provider").get(pk=lease.pk)


def let_pass(lease: Lease, *, hours: float, ready: float | None = None) -> Lease:
    """As if it had run for so long in all, was ready for as long or less, and its agent had billed all of it."""
    now = clock.now()
    begun = now - timedelta(hours=hours)
    Lease.objects.filter(pk=lease.pk).update(running_at=begun, observed_until=now)
    seen_at = begun + timedelta(hours=hours if ready is None else ready)
    Replica.objects.filter(attempt_id=lease.attempt_id).update(ready_at=begun, seen_at=seen_at)
    stage.bill(lease, ms=int(hours * 3_600_000))
    return Lease.objects.select_related("attempt__job", "node__provider").get(pk=lease.pk)


def end(lease: Lease, *, hours: float) -> Lease:
    """It ends, charged for so long, as far as money is set aside."""
    ms = payments.bounded_ms(lease, int(hours * 3_600_000))
    units = min(charge(lease.rate_units_per_hour, ms), lease.cap_units)
    LeaseDevice.objects.filter(lease=lease).update(is_live=False)
    put_in_state(Attempt.objects.filter(pk=lease.attempt_id), AttemptState.CANCELLED, ended_at=clock.now())
    money = {"billable_ms": ms, "charge_units": units, "charge_usd_micros": units}
    put_in_state(Lease.objects.filter(pk=lease.pk), "ended", **money, ended_at=clock.now())
    return Lease.objects.get(pk=lease.pk)
