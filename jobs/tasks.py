"""Celery's entry points into jobs: each may run twice or never, and the sweeps repair what did not."""

from __future__ import annotations

from celery import shared_task

from jobs import evaluations, sweeps
from jobs.artifacts import charges, copies, prune, retention, volumes
from jobs.endpoints import keys, minutes, token_payments, usage_statements
from jobs.placing import growing, placement, replacing
from jobs.plan_checks import keeping
from jobs.running import lost_nodes
from jobs.serving import audits, prepaid_windows, reconcile
from marketplace.foundation.exclusive import only_one


@shared_task
def place_jobs() -> int:
    """Replace the lost nodes of gangs, place what waits, and let gangs grow into what is free then.

    Started by every submit, and by beat for what it missed.
    """
    with only_one("place_jobs") as is_mine:
        if not is_mine:
            return 0
        tick = placement.Tick()
        placed = replacing.replace_lost() + placement.place_waiting(tick)
        return placed + growing.grow(tick.reservations)


@shared_task
def sweep_silent_nodes() -> int:
    """Lose what runs on nodes that fell silent."""
    with only_one("sweep_silent_nodes") as is_mine:
        return lost_nodes.sweep_silent_nodes() if is_mine else 0


@shared_task
def sweep_leases() -> int:
    """End leases that no report will end."""
    with only_one("sweep_leases") as is_mine:
        return sweeps.sweep_leases() if is_mine else 0


@shared_task
def sweep_jobs() -> int:
    """Finish what drained, stop what is spent or late."""
    with only_one("sweep_jobs") as is_mine:
        return sweeps.sweep_jobs() if is_mine else 0


@shared_task
def launch_evaluations() -> int:
    """Launch the evaluations that follow trainings which completed."""
    with only_one("launch_evaluations") as is_mine:
        return evaluations.launch_due() if is_mine else 0


@shared_task
def sweep_checks() -> int:
    """Demand work of idle nodes, and probes of the links between them."""
    with only_one("sweep_checks") as is_mine:
        return sweeps.sweep_checks() if is_mine else 0


@shared_task
def sweep_releases() -> int:
    """Roll the agent's release out, a share of the nodes after the other."""
    with only_one("sweep_releases") as is_mine:
        return sweeps.sweep_releases() if is_mine else 0


@shared_task
def keep_endpoints() -> int:
    """Place the replicas that endpoints lack, drain those that are too many; started by every request that waits."""
    with only_one("keep_endpoints") as is_mine:
        return reconcile.reconcile_endpoints() if is_mine else 0


@shared_task
def keep_windows() -> int:
    """Set aside what endpoints will use next, or stop those whose money is over."""
    with only_one("keep_windows") as is_mine:
        return prepaid_windows.refill_windows() if is_mine else 0


@shared_task
def settle_serving() -> int:
    """Pay providers what running replicas have earned since the day before."""
    with only_one("settle_serving") as is_mine:
        return prepaid_windows.settle_due() if is_mine else 0


@shared_task
def pay_tokens() -> int:
    """Let callers pay other organisations' endpoints, and report counts that contradict each other."""
    with only_one("pay_tokens") as is_mine:
        return token_payments.pay_due() + usage_statements.raise_contested_alerts() if is_mine else 0


@shared_task
def forget_serving() -> int:
    """Delete minutes, use and sessions that nobody looks at any more."""
    with only_one("forget_serving") as is_mine:
        return (
            minutes.forget() + token_payments.forget_records() + keys.forget_sessions() + audits.forget_old()
            if is_mine
            else 0
        )


@shared_task
def prune_artifacts() -> int:
    """Delete what no attempt will resume from, what nobody will finish, and what was kept long enough."""
    with only_one("prune_artifacts") as is_mine:
        return volumes.release_superseded() + prune.prune_all() + retention.sweep() if is_mine else 0


@shared_task
def charge_storage() -> int:
    """Charge what organisations keep beyond their allowance, once a day."""
    with only_one("charge_storage") as is_mine:
        return charges.charge_due() if is_mine else 0


@shared_task
def check_plans() -> int:
    """Hold what the planner says of completed trainings against what was measured."""
    with only_one("check_plans") as is_mine:
        return keeping.sweep() if is_mine else 0


@shared_task
def copy_artifacts() -> int:
    """Copy what is kept into the second store, and repair what one of the two has lost."""
    with only_one("copy_artifacts") as is_mine:
        return copies.copy_due() if is_mine else 0
