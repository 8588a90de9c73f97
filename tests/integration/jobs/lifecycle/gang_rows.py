"""Rows of a gang whose lost nodes are replaced: checkpoints of its nodes, and what their agents report."""

from __future__ import annotations

from jobs.models import Artifact, ArtifactPart
from jobs.running import events
from provider_agent.protocol import AttemptState, LeaseReport
from tests import stage
from tests.row_states import create_in_state

MINUTE_MS = 60_000


def save(job, leases, *, step, ms, state="complete"):
    attempt = stage.newest_attempt(job)
    artifact = create_in_state(
        Artifact,
        state,
        organisation=job.organisation,
        job=job,
        attempt=attempt,
        generation=attempt.generation,
        kind="checkpoint",
        step=step,
        parts_expected=len(leases),
    )
    for lease in leases:
        is_complete = state == "complete"
        ArtifactPart.objects.create(
            artifact=artifact, lease=lease, node_rank=lease.node_rank, files=[], billable_ms=ms, is_complete=is_complete
        )
    return artifact


def follow(leases, **more):
    """Their agents report that the launchers outlive the ranks."""
    for lease in leases:
        stage.send_report(lease, AttemptState.RUNNING, follows_generations=True, **more)
        lease.refresh_from_db()


def report_of(lease, generation=0):
    state = AttemptState(lease.reported_state)
    return LeaseReport(
        lease_id=lease.id, fence=lease.fence, attempt_id=lease.attempt_id, state=state, generation=generation
    )


def resumed(lease, step):
    """The first node says that all ranks have loaded the checkpoint of this step."""
    events.follow_events(lease, 0, b'{"event": "resumed", "step": %d}\n' % step)
