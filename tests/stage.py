"""A small market for tests of the jobs package: Alice buys, Bob provides. The real verbs make the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.utils import timezone

from billing.account_kinds import AccountKind
from billing.books import deposits
from billing.books.balances import balance
from billing.charging import metering
from jobs import lifecycle
from jobs.models import Artifact, ArtifactPart, Attempt, Job, Lease
from jobs.placing import placement
from jobs.quoting import quotes
from jobs.running import receipts, reports
from jobs.spec import Spec, from_wire
from marketplace.accounts.models import Membership, Organisation, Role, User
from marketplace.nodes.models import Device, FabricLink, Node, Offer, Provider
from marketplace.nodes.states import NodeState
from provider_agent.protocol import (
    ZERO_HASH,
    AttemptState,
    LeaseReport,
    Reason,
    ReceiptDomain,
    SignedReceipt,
    UsageReceipt,
    charge,
    sign_receipt,
)
from tests.row_states import create_in_state

DOLLAR = 1_000_000
TRAIN: dict[str, Any] = {
    "kind": "train",
    "name": "tiny",
    "resources": {"gpus": 2, "kind": "any"},
    "work": {"steps": 100},
    "budget": {"max_total": "2.00"},
    "checkpoint": {"every": "10 steps", "keep": 2},
    "train": {"model": "tiny-llama", "data": "python-docs"},
}

OWN_COMMAND: dict[str, Any] = {"kind": "command", "command": "python train.py", "train": None, "work": None}


def spec_of(**changes: Any) -> Spec:
    """A valid spec, with sections replaced."""
    return from_wire({**TRAIN, **changes})


def organisation(name: str, *, usd_micros: int = 0) -> Organisation:
    """An organisation with one owner of the same name, and money where it is given some."""
    created = Organisation.objects.create(name=name)
    user = User.objects.create_user(f"{name}@example.org")
    Membership.objects.create(organisation=created, user=user, role=Role.OWNER)
    if usd_micros:
        deposits.credit(created.id, usd_micros, reference=f"for {name} {uuid4()}", actor="operator")
    return created


def receipt_key(name: str) -> str:
    """The receipt key of the node of this name."""
    return "0x" + hashlib.sha256(f"receipt {name}".encode()).hexdigest()


def node(
    name: str = "bobs-node",
    *,
    price_usd_micros: int = DOLLAR,
    devices: int = 2,
    flops: float = 1e13,
    memory_mib: int = 24_000,
    fabric: str = "",
    provider: Organisation | None = None,
) -> Node:
    """A measured node that is online, with an open offer."""
    from eth_account import Account

    owner = provider or organisation(f"provider-{name}")
    seller, _ = Provider.objects.get_or_create(organisation=owner, defaults={"display_name": owner.name})
    created = create_in_state(
        Node,
        NodeState.ONLINE,
        provider=seller,
        name=name,
        transport_public_key=hashlib.sha256(f"transport {name}".encode()).hexdigest(),
        receipt_address=Account.from_key(receipt_key(name)).address,
        executor="docker",
        agent_version="1",
        protocol=1,
        facts={"is_server": True, "gang": "address" if fabric else "none"},
        memory_mib=memory_mib * devices,
        cpu_count=devices,
        fabric=fabric,
        fabric_address=f"127.0.0.{1 + Node.objects.count()}" if fabric else "",
        last_seen_at=timezone.now(),
        measured_at=timezone.now(),
    )
    for index in range(devices):
        Device.objects.create(
            node=created,
            uuid=f"{name}-{index}",
            index=index,
            kind="gpu",
            model="NVIDIA H100",
            memory_mib=memory_mib,
            flops_per_second={"float32": flops, "bfloat16": flops},
        )
    Offer.objects.create(node=created, price_usd_micros_per_device_hour=price_usd_micros)
    if fabric:
        for peer in Node.objects.filter(provider=seller, fabric=fabric).exclude(pk=created.pk):
            link(created, peer)
    return created


def link(first: Node, second: Node, *, is_reachable: bool = True) -> FabricLink:
    """As if both nodes had just measured what lies between them."""
    a, b = sorted((first, second), key=lambda each: each.pk)
    figures = {"round_trip_us": 200, "bandwidth_bytes_per_second": 10**9} if is_reachable else {}
    next_probe_at = timezone.now() + timedelta(days=1)
    measured = {"is_reachable": is_reachable, "measured_at": timezone.now(), "next_probe_at": next_probe_at}
    return FabricLink.objects.update_or_create(a=a, b=b, defaults=measured | figures)[0]


def submit(alice: Organisation, spec: Spec | None = None, **more: Any) -> Job:
    """Quote and submit."""
    spec = spec or spec_of()
    user = alice.members.first()
    return lifecycle.submit(organisation=alice, user=user, spec=spec, quote_id=quote(alice, spec), **more)


def quote(alice: Organisation, spec: Spec | None = None) -> UUID:
    """A quote that fits."""
    view = quotes.make_quote(spec or spec_of(), alice)
    assert view.quote_id is not None, view.plan
    return view.quote_id


def place(job: Job) -> list[Lease]:
    """Place everything that waits; returns the leases of the job's newest attempt, rank 0 first."""
    placement.place_batch()
    job.refresh_from_db()
    attempt = job.attempts.order_by("-number").first()
    return list(attempt.leases.select_related("node", "attempt").order_by("node_rank")) if attempt else []


def send_report(
    lease: Lease, state: AttemptState, *, fence: int | None = None, boot_id: UUID | None = None, **more: Any
) -> None:
    """The lease's node reports it (and its other live leases as they were last reported)."""
    others = Lease.objects.live().filter(node_id=lease.node_id).exclude(pk=lease.pk).select_related("attempt")
    lines = [
        LeaseReport(
            lease_id=each.id, fence=each.fence, attempt_id=each.attempt_id, state=AttemptState(each.reported_state)
        )
        for each in others
    ]
    lines.append(
        LeaseReport(lease_id=lease.id, fence=fence or lease.fence, attempt_id=lease.attempt_id, state=state, **more)
    )
    fresh = Node.objects.get(pk=lease.node_id)
    reports.apply_reports(fresh, lines, boot_id=boot_id or fresh.boot_id or uuid4(), received_at=timezone.now())


def running_job(alice: Organisation, **changes: Any) -> tuple[Job, list[Lease]]:
    """A job of a spec with these changes, and its leases; every one was reported to run."""
    job = submit(alice, spec_of(**changes))
    leases = place(job)
    for lease in leases:
        send_report(lease, AttemptState.PREPARING)
        send_report(lease, AttemptState.RUNNING)
    job.refresh_from_db()
    return job, leases


def see_running(lease: Lease, *, seconds: float) -> None:
    """As if the server had watched the lease run for so long."""
    now = timezone.now()
    Lease.objects.filter(pk=lease.pk).update(running_at=now - timedelta(seconds=seconds), observed_until=now)


def receipt(lease: Lease, *, ms: int, seq: int | None = None, key: str | None = None) -> SignedReceipt:
    """The next receipt of a lease, signed by its node's key."""
    newest = metering.newest(lease.id)
    terms = lease.payment_terms
    body = UsageReceipt(
        job_id=lease.attempt.job_id,
        lease_id=lease.id,
        **(terms.parties.model_dump() if terms else {}),
        seq=seq or (newest.seq if newest else 0) + 1,
        billable_ms=ms,
        cumulative_amount=charge(lease.rate_units_per_hour, ms),
        prev_digest=newest.digest if newest else ZERO_HASH,
    )
    return sign_receipt(key or receipt_key(lease.node.name), body, terms.domain if terms else ReceiptDomain())


def bill(lease: Lease, *, ms: int) -> None:
    """The node sends its next receipt."""
    receipts.accept(Lease.objects.select_related("attempt", "node").get(pk=lease.pk), [receipt(lease, ms=ms)])


def finish(lease: Lease, reason: Reason = Reason.COMPLETED, **more: Any) -> None:
    """The node reports the end that belongs to a reason, with every byte and receipt delivered."""
    from provider_agent.protocol import REASONS

    newest = metering.newest(lease.id)
    send_report(lease, REASONS[reason].state, reason=reason, receipt_seq=newest.seq if newest else 0, **more)


def newest_attempt(job: Job) -> Attempt:
    """The attempt with the highest number."""
    return job.attempts.order_by("-number")[0]


def states_of(rows: Sequence[Any]) -> list[str]:
    """Their states as they are in the database now."""
    for row in rows:
        row.refresh_from_db()
    return [str(row.state) for row in rows]


def checkpoint(job: Job, lease: Lease, *, step: int, ms: int, state: str = "complete") -> Artifact:
    """A checkpoint of a lease that is alone, taken when its meter stood at `ms`."""
    artifact = create_in_state(
        Artifact, state, organisation=job.organisation, job=job, attempt=lease.attempt, kind="checkpoint", step=step
    )
    ArtifactPart.objects.create(artifact=artifact, lease=lease, files=[], billable_ms=ms, is_complete=True)
    return artifact


def earned(node: Node) -> int:
    """What the node's provider has been paid, also what is in its challenge window."""
    owner = node.provider.organisation_id
    return balance(owner, AccountKind.PROVIDER_PENDING) + balance(owner, AccountKind.PROVIDER_AVAILABLE)
