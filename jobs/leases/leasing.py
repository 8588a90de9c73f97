"""Reserve devices, keep the right to them alive, end it with a price.

reserve     devices -> lease; the database lets a device have one live lease
extend      every sync moves `lease_until` on
end_lease   the devices are free, and what the lease cost is decided for ever
recharge    but for a checkpoint that paid for it and was condemned before the job ended
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import IntegrityError, connection, transaction

from billing.charging import metering
from billing.models import Asset
from jobs.errors import AssetTooCoarse, DeviceTaken
from jobs.kinds.registry import kind_of
from jobs.leases import billing_facts
from jobs.models import Attempt, Lease, LeaseDevice, PriceLock
from jobs.pricing import assets
from jobs.states import JOB_ENDS, LeaseState
from marketplace.foundation import clock
from marketplace.foundation.states import advance, record_birth
from marketplace.nodes.models import Device, Offer
from provider_agent.protocol import BEAT_SECONDS_LEASED, REASONS, ZERO_ADDRESS, Billable, Reason, charge

# The agent stops the container when this passes without an answer from the server. Longer than the time after which a
# silent node is lost, so that a restart of the marketplace costs no customer an attempt; a node that was cut off may
# therefore go on for a while, unpaid and fenced off.
LEASE_SECONDS = 120
GRACE_MS = BEAT_SECONDS_LEASED * 1000  # the agent's meter may be one heartbeat ahead of what the server saw


@dataclass(frozen=True)
class LeasePrice:
    """What a lease costs, in dollars for people and in base units of `asset` for money; equal where it is dollars."""

    price_usd_micros: int  # per device and hour
    cap_usd_micros: int
    asset: Asset
    rate_units_per_hour: int  # of all devices
    cap_units: int
    customer: str = ZERO_ADDRESS  # the wallet whose hold in the contract pays
    lock: PriceLock | None = None  # the token's price, where it is not the quote's


def reserve(
    attempt: Attempt,
    offer: Offer,
    devices: Sequence[Device],
    *,
    node_rank: int,
    price: LeasePrice,
    is_joining: bool = False,
) -> Lease:
    """Take `devices` for `attempt` at a frozen price; `is_joining`: its gang runs without them until it grows.

    Raises DeviceTaken when another lease was faster, AssetTooCoarse for a rate of nothing, NoWallet.
    """
    rate_usd_micros = price.price_usd_micros * len(devices)
    if price.rate_units_per_hour == 0 and rate_usd_micros:
        raise AssetTooCoarse(asset=price.asset.code, rate=0)
    terms = assets.terms_of(
        price.asset,
        offer.node,
        rate_per_hour=price.rate_units_per_hour,
        cap=price.cap_units,
        customer=price.customer,
    )
    try:
        with transaction.atomic():
            lease = Lease.objects.create(
                attempt=attempt,
                node_id=offer.node_id,
                offer=offer,
                fence=_next_fence(),
                node_rank=node_rank,
                is_joining=is_joining,
                device_count=len(devices),
                price_usd_micros_per_device_hour=price.price_usd_micros,
                rate_usd_micros_per_hour=rate_usd_micros,
                cap_usd_micros=price.cap_usd_micros,
                asset=price.asset,
                rate_units_per_hour=price.rate_units_per_hour,
                cap_units=price.cap_units,
                price_lock=price.lock,
                payment=terms.model_dump(mode="json") if terms else {},
                lease_until=clock.now() + timedelta(seconds=LEASE_SECONDS),
            )
            LeaseDevice.objects.bulk_create(LeaseDevice(lease=lease, device=device) for device in devices)
    except IntegrityError as error:
        if "one_live_lease_per_device" not in str(error):
            raise
        raise DeviceTaken(node_id=str(offer.node_id)) from error
    record_birth(lease, data={"node": str(offer.node_id), "fence": lease.fence})
    return lease


def extend(lease_ids: Iterable[UUID], *, now: datetime) -> int:
    """Move the deadline of live leases on; returns how many."""
    return Lease.objects.live().filter(pk__in=lease_ids).update(lease_until=now + timedelta(seconds=LEASE_SECONDS))


def end_lease(lease: Lease, billable: Billable, *, reason: str) -> Lease:
    """Free the devices and freeze what the customer pays for this lease; the rest of what it claims is refunded."""
    meter = read_meter(lease, billable)
    meter = meter._replace(billable_ms=kind_of(lease.attempt.job).payable_ms(lease, meter.billable_ms))
    usd_micros = min(charge(lease.rate_usd_micros_per_hour, meter.billable_ms), lease.cap_usd_micros)
    units = min(charge(lease.rate_units_per_hour, meter.billable_ms), lease.cap_units)
    advance(
        lease,
        LeaseState.ENDED,
        reason=reason,
        data={"billable_ms": meter.billable_ms, "charge_usd_micros": usd_micros, "charge_units": str(units)},
        billable_ms=meter.billable_ms,
        charge_usd_micros=usd_micros,
        charge_units=units,
        charged_seq=meter.charged_seq,
        checkpoint_ms=meter.checkpoint_ms,
        ended_at=clock.now(),
    )
    LeaseDevice.objects.filter(lease=lease).update(is_live=False)
    billing_facts.keep(lease, reason=reason, checkpointed_ms=_saved_ms(lease))
    return lease


def recharge(lease: Lease) -> int:
    """Charge an ended lease again, as a checkpoint that paid for it was condemned; by how many units it is less.

    The one exception to a price that is decided for ever, and only while its job has not ended: nothing was settled
    yet. What a contract pays was handed to it already. Call it with the job's row locked.
    """
    rule = REASONS[Reason(lease.end_reason)].billable if lease.state == LeaseState.ENDED else Billable.OBSERVED
    if rule != Billable.CHECKPOINT or lease.attempt.job.state in JOB_ENDS or is_paid_by_contract(lease):
        return 0
    meter, before = read_meter(lease, rule), lease.charge_units or 0
    billable_ms = min(kind_of(lease.attempt.job).payable_ms(lease, meter.billable_ms), lease.billable_ms or 0)
    lease.billable_ms, lease.checkpoint_ms = billable_ms, meter.checkpoint_ms
    lease.charge_usd_micros = min(charge(lease.rate_usd_micros_per_hour, billable_ms), lease.cap_usd_micros)
    lease.charge_units = min(charge(lease.rate_units_per_hour, billable_ms), lease.cap_units)
    lease.save(update_fields=["billable_ms", "checkpoint_ms", "charge_usd_micros", "charge_units"])
    return int(before - lease.charge_units)


class MeterReading(NamedTuple):
    """How much of a lease is paid, and the receipt and checkpoint that this follows from; a bill shows the same."""

    billable_ms: int
    charged_seq: int  # of the newest receipt; 0 for none
    checkpoint_ms: int | None  # None where the rule needs no checkpoints


def read_meter(lease: Lease, billable: Billable) -> MeterReading:
    """Milliseconds that are paid: what a signed receipt claims, the server saw, and the ending's rule allows.

    A contract pays receipts and no part of one: there it is the newest receipt that is within all of this.
    """
    newest = metering.newest(lease.id)
    seq = newest.seq if newest else 0
    claimed = min(newest.billable_ms, lease.observed_ms + GRACE_MS) if newest else 0
    if billable == Billable.NOTHING:
        return MeterReading(0, seq, None)
    saved = None if billable == Billable.OBSERVED else _saved_ms(lease)
    due = lease.paid_of(claimed if saved is None else min(claimed, saved))
    if not is_paid_by_contract(lease):
        return MeterReading(due, seq, saved)
    within = metering.newest_within(lease.id, due)
    return MeterReading(within.billable_ms if within else 0, within.seq if within else 0, saved)


def is_paid_by_contract(lease: Lease) -> bool:
    """Whether its receipts name a customer's wallet: then the contract settles it, and nothing of ours does."""
    terms = lease.payment_terms
    return terms is not None and terms.customer != ZERO_ADDRESS


def _saved_ms(lease: Lease) -> int:
    return kind_of(lease.attempt.job).saved_ms(lease)


def _next_fence() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('jobs_lease_fence')")
        (fence,) = cursor.fetchone()
    return int(fence)
