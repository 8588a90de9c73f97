"""Decides whether an assignment may run here, and journals it before anything else happens."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from typing import Final

from provider_agent.context import AgentContext
from provider_agent.errors import AssignmentRefused, JournalFailed, StaleFence
from provider_agent.journal import LeaseEntry, since_fact
from provider_agent.lease.cache.owners import keep_owner
from provider_agent.lease.cache.prepared import keep_prepared
from provider_agent.lease.runtimes.registry import runtime_of
from provider_agent.lease.workfolder import keep_joining, keep_secrets
from provider_agent.protocol import PROTOCOL_VERSIONS_SPOKEN, Assignment, Desired, charge, verify_assignment

# They have files of their own in the lease's folder. A journal with any but the first could not be read by the release
# before.
NOT_JOURNALED: Final[dict[str, object]] = {
    "secrets": {},
    "cache_owner": "",
    "prepared_artifact_id": None,
    "joins_next": False,
}

CHANGING: Final = (
    *("generation", "gang", "resume_artifact_id"),
    *("seconds_max", "cap_usd_micros", "checkpoint"),
)


def accept_assignment(context: AgentContext, desired: Desired) -> LeaseEntry:
    """Verify, check the fence, journal; raises AssignmentRefused, StaleFence, JournalFailed or OSError, and then
    nothing was kept.

    1. the server's signature, then that it is for this node, this lease and devices that are here
    2. its fence is newer than any seen for each of its devices
    3. secrets to their file, lease and fences into the journal, in one transaction
    """
    assignment = _verify(context, desired)
    for uuid in assignment.device_uuids:
        newest = context.journal.newest_fence(uuid)
        if assignment.fence <= newest:
            raise StaleFence(f"The fence {assignment.fence} of the device {uuid} is not newer than {newest}.")
    entry = LeaseEntry(assignment.model_copy(update=NOT_JOURNALED), lease_until=desired.lease_until)
    folder = context.folder.lease(assignment.lease_id)
    try:
        keep_secrets(folder, assignment.secrets)
        if assignment.joins_next:
            keep_joining(folder)
        program = assignment.program
        if runtime_of(assignment).has_cache(assignment) or (program.command and program.requirements is not None):
            keep_owner(folder, assignment.cache_owner)
            keep_prepared(folder, assignment.prepared_artifact_id)
        with context.journal.transaction():
            context.journal.save_lease(entry)
            context.journal.save_fact(since_fact(assignment.lease_id), datetime.now(UTC).isoformat())
            for uuid in assignment.device_uuids:
                context.journal.save_fence(uuid, assignment.fence)
    except (JournalFailed, OSError):
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return entry


def accept_generation(context: AgentContext, entry: LeaseEntry, desired: Desired) -> bool:
    """Journal a later assignment of a lease that is here: its gang has other members, or more or fewer of them. False
    for an old one.

    Raises AssignmentRefused where anything but the gang, the checkpoint and the cap differs, or the cap would not pay
    for what was metered; and JournalFailed.
    """
    assignment, before = _verify(context, desired), entry.assignment
    if assignment.generation <= before.generation:
        return False
    if _fixed(assignment) != _fixed(before):
        raise AssignmentRefused("A later generation of the gang changes more than its members.")
    place = assignment.gang
    if place.nodes < 2 or place.node_rank >= place.nodes or place.devices_per_node != before.gang.devices_per_node:
        raise AssignmentRefused("A later generation of the gang has no such place for this node.")
    if assignment.cap < charge(assignment.rate_per_hour, entry.billable_ms):
        raise AssignmentRefused("A later generation of the gang pays less than this node has earned.")
    entry.assignment = assignment.model_copy(update=NOT_JOURNALED)
    try:
        context.journal.save_lease(entry)
    except JournalFailed:
        entry.assignment = before
        raise
    return True


def _fixed(assignment: Assignment) -> dict[str, object]:
    """What no generation changes. The caps of a gang's leases are shared anew when it has another size."""
    body = assignment.model_dump(exclude={*CHANGING, *NOT_JOURNALED})
    payment = assignment.payment
    return body | {"payment": None if payment is None else payment.model_dump(exclude={"cap"})}


def _verify(context: AgentContext, desired: Desired) -> Assignment:
    if desired.assignment is None:
        raise AssignmentRefused("The server wants a lease that this node does not have, without its assignment.")
    try:
        assignment = verify_assignment(context.config.server_public_key, desired.assignment)
    except ValueError as error:
        raise AssignmentRefused(str(error).splitlines()[0]) from error
    if assignment.protocol not in PROTOCOL_VERSIONS_SPOKEN:
        raise AssignmentRefused(f"The assignment speaks protocol {assignment.protocol}. Update this agent.")
    if assignment.node_id != context.config.node_id:
        raise AssignmentRefused("The assignment is for another node.")
    if assignment.lease_id != desired.lease_id or assignment.fence != desired.fence:
        raise AssignmentRefused("The assignment is for another lease than the one named.")
    unknown = [uuid for uuid in assignment.device_uuids if uuid not in context.devices]
    if unknown:
        raise AssignmentRefused(f"The assignment is for devices that are not here: {', '.join(unknown)}.")
    runtime_of(assignment).check(assignment)
    return assignment
