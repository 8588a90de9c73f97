"""Decides whether an assignment may run here, and journals it before anything else happens."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime

from provider_agent.errors import BadAssignment, JournalFailed, StaleFence
from provider_agent.journal import LeaseEntry, since_fact
from provider_agent.porter import Porter
from provider_agent.protocol import PROTOCOL_VERSIONS_SPOKEN, Assignment, Desired, verify_assignment
from provider_agent.workfolder import keep_secrets


def accept_assignment(porter: Porter, desired: Desired) -> LeaseEntry:
    """Verify, check the fence, journal; raises BadAssignment, StaleFence, JournalFailed or OSError, and then
    nothing was kept.

    1. the server's signature, then that it is for this node, this lease and devices that are here
    2. its fence is newer than any seen for each of its devices
    3. secrets to their file, lease and fences into the journal, in one transaction
    """
    assignment = _verify(porter, desired)
    for uuid in assignment.device_uuids:
        newest = porter.journal.newest_fence(uuid)
        if assignment.fence <= newest:
            raise StaleFence(f"The fence {assignment.fence} of the device {uuid} is not newer than {newest}.")
    entry = LeaseEntry(assignment.model_copy(update={"secrets": {}}), lease_until=desired.lease_until)
    folder = porter.folder.lease(assignment.lease_id)
    try:
        keep_secrets(folder, assignment.secrets)
        with porter.journal.transaction():
            porter.journal.save_lease(entry)
            porter.journal.save_fact(since_fact(assignment.lease_id), datetime.now(UTC).isoformat())
            for uuid in assignment.device_uuids:
                porter.journal.save_fence(uuid, assignment.fence)
    except (JournalFailed, OSError):
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return entry


def _verify(porter: Porter, desired: Desired) -> Assignment:
    if desired.assignment is None:
        raise BadAssignment("The server wants a lease that this node does not have, without its assignment.")
    try:
        assignment = verify_assignment(porter.config.server_public_key, desired.assignment)
    except ValueError as error:
        raise BadAssignment(str(error).splitlines()[0]) from error
    if assignment.protocol not in PROTOCOL_VERSIONS_SPOKEN:
        raise BadAssignment(f"The assignment speaks protocol {assignment.protocol}. Update this agent.")
    if assignment.node_id != porter.config.node_id:
        raise BadAssignment("The assignment is for another node.")
    if assignment.lease_id != desired.lease_id or assignment.fence != desired.fence:
        raise BadAssignment("The assignment is for another lease than the one named.")
    unknown = [uuid for uuid in assignment.device_uuids if uuid not in porter.devices]
    if unknown:
        raise BadAssignment(f"The assignment is for devices that are not here: {', '.join(unknown)}.")
    if not assignment.program.command and assignment.program.runtime is None:
        raise BadAssignment("The assignment names neither a runtime nor a command.")
    return assignment
