"""Celery tasks of `marketplace.nodes`: each calls one function."""

from __future__ import annotations

from celery import shared_task

from marketplace.foundation.exclusive import only_one
from marketplace.nodes.watching import liveness, metrics


@shared_task(ignore_result=True)
def flush_beats() -> int:
    """Every 2 s. `jobs` sweeps silent nodes, because it has the leases."""
    return liveness.flush_beats()


@shared_task(ignore_result=True)
def fold_loads() -> int:
    """Every minute: what nodes measured of themselves becomes rows."""
    with only_one("fold_loads") as is_mine:
        return metrics.fold() if is_mine else 0


@shared_task(ignore_result=True)
def thin_metrics() -> int:
    """Every hour: old minutes become hours."""
    with only_one("thin_metrics") as is_mine:
        return metrics.thin() if is_mine else 0
