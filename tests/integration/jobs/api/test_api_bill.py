"""GET /api/v1/jobs/{id}/bill: adds up, verifies, and says why less is charged."""

from __future__ import annotations

import pytest

from jobs import lifecycle
from jobs.client.verify.bill import verify_bill
from jobs.models import Artifact, ArtifactPart, Lease
from jobs.wire import BillView
from marketplace.accounts.models import Organisation
from provider_agent.protocol import Reason
from tests import stage
from tests.integration.jobs.api.api_clients import API, client_of
from tests.row_states import create_in_state
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


def bill_of(organisation: Organisation, lease: Lease) -> BillView:
    return BillView.model_validate(client_of(organisation).get(f"{API}/jobs/{lease.attempt.job_id}/bill").json())


def test_a_completed_job_is_billed_what_its_receipts_say_and_verifies(alice: Organisation, lease: Lease) -> None:
    stage.see_running(lease, seconds=1800)
    for ms in (600_000, 1_200_000, 1_800_000):
        stage.bill(lease, ms=ms)
    stage.finish(lease)
    bill = bill_of(alice, lease)
    assert bill.is_final
    assert (bill.total_usd_micros, bill.fee_usd_micros) == (DOLLAR, DOLLAR // 10)
    assert (bill.hold_usd_micros, bill.released_usd_micros) == (2 * DOLLAR, DOLLAR)
    assert [len(line.receipts) for line in bill.lines] == [3]
    assert bill.lines[0].explanation == ""
    verification = verify_bill(bill)
    assert (verification.problem, verification.receipts) == (None, 3)


def test_a_changed_bill_does_not_verify(alice: Organisation, lease: Lease) -> None:
    stage.see_running(lease, seconds=1800)
    stage.bill(lease, ms=1_800_000)
    stage.finish(lease)
    bill = bill_of(alice, lease)
    dearer = bill.lines[0].model_copy(update={"charge_usd_micros": bill.total_usd_micros + 1})
    assert verify_bill(bill.model_copy(update={"lines": [dearer]})).problem is not None


def test_what_the_provider_broke_is_refunded_back_to_the_checkpoint_and_explained(
    alice: Organisation, lease: Lease
) -> None:
    stage.see_running(lease, seconds=100)
    stage.bill(lease, ms=100_000)
    artifact = create_in_state(
        Artifact,
        "complete",
        organisation=alice,
        job=lease.attempt.job,
        attempt=lease.attempt,
        kind="checkpoint",
        step=10,
    )
    ArtifactPart.objects.create(artifact=artifact, lease=lease, files=[], billable_ms=36_000, is_complete=True)
    stage.finish(lease, Reason.DEVICE_FAILED)
    lifecycle.cancel(lease.attempt.job_id, actor="alice")
    bill = bill_of(alice, lease)
    (line,) = bill.lines
    assert (line.claimed_ms, line.billable_ms) == (100_000, 36_000)
    assert line.charge_usd_micros == bill.total_usd_micros == 20_000
    assert line.refunded_usd_micros == line.claimed_usd_micros - 20_000
    assert line.explanation == (
        "It broke (device_failed), the provider's fault: charged up to the last complete checkpoint, 36.0 s in; "
        "the 64.0 s since then are refunded."
    )
    assert verify_bill(bill).problem is None


def test_without_a_checkpoint_a_broken_attempt_costs_nothing(alice: Organisation, lease: Lease) -> None:
    stage.see_running(lease, seconds=100)
    stage.bill(lease, ms=100_000)
    stage.finish(lease, Reason.DISK_FULL)
    (line,) = bill_of(alice, lease).lines
    assert line.charge_usd_micros == 0
    assert "before any checkpoint was complete: nothing is charged" in line.explanation


def test_the_bill_of_a_running_job_is_not_final(alice: Organisation, lease: Lease) -> None:
    stage.see_running(lease, seconds=60)
    stage.bill(lease, ms=36_000)
    bill = bill_of(alice, lease)
    assert (bill.is_final, bill.settlement) == (False, None)
    assert bill.total_usd_micros == 20_000
    assert verify_bill(bill).problem is None
