"""What should run on a node: the server's half of the level-triggered sync.

The answer is the same each time, so that the next sync repairs a lost message. Every lease that the node still reports
is answered for: run it, stop it, or forget it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings

from jobs.artifacts import prepared
from jobs.kinds.base import Execution
from jobs.kinds.believing import LEASE_SECONDS_MAX
from jobs.kinds.registry import kind_of
from jobs.leases.failure_rate import mean_seconds_to_failure
from jobs.leases.fencing import has_fence
from jobs.leases.gangs import gang_place
from jobs.leases.leasing import LEASE_SECONDS
from jobs.models import Lease, LeaseDevice
from jobs.results import results_of
from jobs.states import LEASE_LIVE
from marketplace.foundation import clock, signing
from marketplace.foundation.exclusive import log_failures
from marketplace.nodes.models import Node
from provider_agent.protocol import (
    ATTEMPT_ENDS,
    CACHE_FEATURE,
    SERVER_ALONE,
    Assignment,
    CheckpointPolicy,
    Desired,
    LeaseReport,
    Program,
    Reason,
    SignedAssignment,
    payable_ms,
    sign_assignment,
)

CACHE_OWNER_DIGITS: Final = 32
# What of `env` and `secrets` our own runtimes are given. By many a variable (PYTHONPATH, HOME, PATH, OPENSSL_CONF) a
# customer would run code in them, and how they end counts as the node's doing, not as the customer's.
GIVEN_TO_OURS: Final = frozenset(
    {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "NCCL_DEBUG", "PYTORCH_CUDA_ALLOC_CONF", "TOKENIZERS_PARALLELISM"}
)


def desired_state(node: Node, reports: Sequence[LeaseReport]) -> tuple[str, list[Desired], list[UUID]]:
    """What this node should run and stop, and what it may forget; with a version that changes only when they do."""
    known = {report.lease_id: report for report in reports}
    until = clock.now() + timedelta(seconds=LEASE_SECONDS)
    live = list(
        Lease.objects.live()
        .filter(node=node)
        .select_related("attempt__job", "attempt__replica__version", "attempt__replica__endpoint")
    )
    desired = []
    for lease in live:  # one that cannot be made must not keep the node's others from going on
        with log_failures("An assignment could not be made.", lease_id=str(lease.id)):
            report = known.get(lease.id)
            is_known = report is not None and report.generation >= lease.attempt.generation
            desired.append(_wanted(lease, until, is_known=is_known))
    gone = set(known) - {lease.id for lease in live}
    ended = {lease.id: lease for lease in Lease.objects.filter(pk__in=gone, node=node)}
    forget = []
    for lease_id in sorted(gone):
        report, old = known[lease_id], ended.get(lease_id)
        if report.state not in ATTEMPT_ENDS:
            desired.append(
                Desired(
                    lease_id=lease_id,
                    fence=report.fence,
                    action="stop",
                    stop_reason=_reason_to_stop(old),
                    lease_until=clock.now(),
                )
            )
        elif old is None or not has_fence(old, report.fence) or _has_everything(old):
            forget.append(lease_id)
    generations = [lease.attempt.generation for lease in live]
    marks: list[int | str] = [*generations] if any(generations) else []
    # Of a gang that lost a peer: another version asks its nodes for their next sync.
    marks += [lease.attempt.suspected_at.isoformat() for lease in live if lease.attempt.suspected_at is not None]
    return _version(node, desired, forget, marks), desired, forget


def nothing_desired(node: Node) -> str:
    """The version that `desired_state` gives a node without leases."""
    return _version(node, [], [], [])


def make_assignment(lease: Lease) -> SignedAssignment:
    """The signed order to run one lease's part of its attempt; opens the job's secrets for it."""
    attempt, job = lease.attempt, lease.attempt.job
    kind = kind_of(job)
    resume_id = None if lease.is_joining else attempt.resume_artifact_id  # who joins is told when it does
    execution = kind.execution(attempt)
    spec = execution.spec
    secrets = json.loads(signing.decrypt_secret(job.sealed_secrets)) if job.sealed_secrets else {}
    ours = GIVEN_TO_OURS | kind.spec_kind.runtime_variables(spec)
    devices = LeaseDevice.objects.filter(lease=lease).order_by("device__index")
    assignment = Assignment(
        node_id=lease.node_id,
        lease_id=lease.id,
        fence=lease.fence,
        attempt_id=attempt.id,
        attempt_number=attempt.number,
        job_id=job.id,
        job_name=job.name,
        device_uuids=list(devices.values_list("device__uuid", flat=True)),
        rate_usd_micros_per_hour=lease.rate_usd_micros_per_hour,
        cap_usd_micros=lease.cap_usd_micros,
        program=execution.program,
        env=_given(spec.env, execution.program, ours=ours),
        secrets=_given(secrets, execution.program, ours=ours) | _renamed(secrets, kind.spec_kind.runtime_secrets(spec)),
        input_artifact_id=execution.input_artifact_id,
        resume_artifact_id=resume_id,
        prepared_artifact_id=kept.pk if (kept := prepared.find_for(lease)) else None,
        checkpoint=CheckpointPolicy(
            every_steps=spec.checkpoint.every_steps,
            every_seconds=spec.checkpoint.every_seconds,
            keep=spec.checkpoint.keep,
            path=spec.checkpoint.path,
            mean_seconds_to_failure=mean_seconds_to_failure(attempt) if spec.checkpoint.is_auto else 0,
        ),
        gang=gang_place(lease),
        generation=attempt.generation,
        joins_next=lease.is_joining,
        network=spec.network,
        lent=spec.lent,
        outputs=spec.outputs,
        cache_owner=_cache_owner_of(lease, execution),
        inputs=results_of(job),
        shm_mib=spec.resources.shm_mib,
        seconds_max=seconds_payable(lease),
        stop_grace_seconds=execution.stop_grace_seconds,
        payment=lease.payment_terms,
        serve=execution.serve,
    )
    return sign_assignment(signing.server_key(), assignment)


def cache_owner(lease: Lease) -> str:
    """By what name a node keeps what jobs of one organisation leave for each other; empty for one without a cache.

    It says nothing of the organisation, and two nodes are given two names: their providers cannot compare them.
    """
    features = lease.node.facts.get("runtime_features")
    if not isinstance(features, list) or CACHE_FEATURE not in features:  # an older agent refuses the field
        return ""
    text = f"cache {lease.node_id} {lease.attempt.job.organisation_id}"
    return hmac.digest(settings.SECRET_KEY.encode(), text.encode(), "sha256").hex()[:CACHE_OWNER_DIGITS]


def _cache_owner_of(lease: Lease, execution: Execution) -> str:
    """None for a command of the customer's own: what it leaves there our own programs would believe.

    But where packages are installed for it: the node keeps these apart, as they are before the command begins. An agent
    from before that passes the name over.
    """
    program = execution.program
    has_none = execution.serve is not None or (program.command and program.requirements is None)
    return "" if has_none else cache_owner(lease)


def seconds_payable(lease: Lease) -> int:
    """How long the lease's cap lasts at its rate, in whole seconds, at least one."""
    seconds = payable_ms(lease.rate_units_per_hour, lease.cap_units) // 1000
    return max(1, min(seconds, LEASE_SECONDS_MAX))


def _given(variables: Mapping[str, str], program: Program, *, ours: Set[str]) -> dict[str, str]:
    """All of them for a command of the customer's own; for our runtimes what they read: `ours`."""
    return {name: value for name, value in variables.items() if program.command or name in ours}


def _renamed(secrets: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Those that our runtime reads for this job, under names that nothing else reads."""
    return {variable: secrets[name] for variable, name in wanted.items() if name in secrets}


def _wanted(lease: Lease, until: datetime, *, is_known: bool) -> Desired:
    return Desired(
        lease_id=lease.id,
        fence=lease.fence,
        action="stop" if lease.stop_reason else "run",
        stop_reason=Reason(lease.stop_reason) if lease.stop_reason else None,
        lease_until=until,
        assignment=None if is_known else make_assignment(lease),
    )


def _reason_to_stop(ended: Lease | None) -> Reason:
    """Why a lease that is over here is stopped there; never a reason that an older agent cannot read."""
    reason = Reason(ended.stop_reason or ended.reported_reason or Reason.LEASE_EXPIRED) if ended else None
    return Reason.LEASE_EXPIRED if reason is None or reason in SERVER_ALONE else reason


def _has_everything(lease: Lease) -> bool:
    """An ended lease owes nothing more: its streams are drained."""
    return lease.state not in LEASE_LIVE and (
        lease.log_bytes >= (lease.log_bytes_final or 0) and lease.event_bytes >= (lease.event_bytes_final or 0)
    )


def _version(node: Node, desired: Sequence[Desired], forget: Sequence[UUID], marks: Sequence[int | str]) -> str:
    body = [
        node.state,
        [(str(d.lease_id), d.action, d.stop_reason) for d in desired],
        [str(i) for i in forget],
        *marks,
    ]
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()[:32]
