"""P14: no lease without a hold that covers it, in either way of paying, whatever happens in whichever order."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.db.models import Sum
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from billing.books import deposits
from billing.errors import BillingError
from billing.models import EscrowHold, Hold
from billing.rails.registry import source_of
from billing.states.chain import EscrowHoldState
from jobs import lifecycle, sweeps
from jobs.errors import JobsError
from jobs.models import Job, Lease
from jobs.placing import placement
from jobs.states import LEASE_LIVE
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.protocol import Reason
from tests import stage
from tests.integration.billing.chain.town import Town
from tests.integration.jobs.escrow import scenes
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)

STEPS = ("escrow", "credits", "follow", "place", "withdraw", "deposit", "cancel", "break", "sweep")


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(steps=["escrow", "place", "follow", "place", "follow", "place", "break", "place"])
@example(steps=["credits", "place", "break", "place", "withdraw", "escrow", "withdraw", "follow", "place"])
@given(steps=st.lists(st.sampled_from(STEPS), min_size=6, max_size=14))
def test_P14_no_lease_is_without_a_hold_that_covers_it(
    town: Town, alice: Organisation, bob: Node, steps: list[str]
) -> None:
    verbs: dict[str, Any] = {
        "escrow": lambda: scenes.submit(town, alice),
        "credits": lambda: stage.submit(alice, stage.spec_of(payment={"asset": "TUSD"})),
        "follow": town.follow,
        "place": placement.place_batch,
        "withdraw": lambda: town.call("Alice", "withdraw", town.view("available", town.key("Alice").address)),
        "deposit": lambda: town.deposit("Alice", 3 * DOLLAR),
        "cancel": lambda: lifecycle.cancel(Job.objects.latest("created_at").pk, actor="alice"),
        "break": lambda: stage.finish(Lease.objects.live().select_related("node", "attempt")[0], Reason.DEVICE_FAILED),
        "sweep": sweeps.sweep_jobs,
    }
    deposits.credit(
        alice.id, 2 * DOLLAR, reference=str(uuid4()), actor="x", source=source_of("chain"), asset_id=town.asset_id
    )
    for step in steps:
        Node.objects.filter(pk=bob.pk).update(last_seen_at=clock.now())  # however long all examples take together
        try:
            verbs[step]()
        except (JobsError, BillingError, Job.DoesNotExist, IndexError):
            continue
        finally:
            assert_covered()


def assert_covered() -> None:
    for job in Job.objects.filter(attempts__leases__state__in=LEASE_LIVE).distinct():
        leases = Lease.objects.filter(attempt__job=job)
        live = leases.filter(state__in=LEASE_LIVE).aggregate(units=Sum("cap_units"))["units"] or 0
        spent = leases.exclude(state__in=LEASE_LIVE).aggregate(units=Sum("charge_units"))["units"] or 0
        if job.is_escrow:
            assert EscrowHold.objects.filter(pk=job.pk, state=EscrowHoldState.OPEN, amount__gte=live + spent).exists()
            assert not Hold.objects.filter(job_id=job.pk).exists()
        else:
            assert Hold.objects.open().filter(job_id=job.pk, amount__gte=live + spent).exists()
            assert not EscrowHold.objects.filter(pk=job.pk).exists()
