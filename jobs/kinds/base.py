"""The interface of a kind of job on the server. Its other half, of the job file, is `jobs.spec.kinds.base.SpecKind`.

    a quote          set_aside_usd_micros
    submit           find_input, require_money, open
    a placed attempt execution: the spec, the program, its input; keeps_prepared
    a lease's end    believed_reason, pins_input
    the end of it    payable_ms, saved_ms, after_attempt
    the job's end    late_end, close, settle, charged_usd_micros; explain_broken on its bill
    resume, resubmit require_more, hold_more; to_repeat

The base class is a program that runs to its end, one attempt at a time: its cap is held at once and settled at once. A
kind overrides what differs. Every verb is called in a transaction, the job's row locked; none of them changes a job's
state: `after_attempt` and `late_end` return what it should be, and `jobs.lifecycle` changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from django.conf import settings

from billing.charging import holds, promotions, settlement
from jobs.kinds import believing, retrying
from jobs.kinds.retrying import NextStep
from jobs.models import Artifact, ArtifactPart, Attempt, Job, Lease, Quote
from jobs.payment.terms import Payment
from jobs.pricing.funds import require_money
from jobs.pricing.price_locks import spent_usd_micros
from jobs.spec import Spec, from_wire
from jobs.spec.kinds.base import SpecKind
from jobs.states import JobState
from marketplace.accounts.models import Organisation
from provider_agent.protocol import Outcome, Program, Reason, ServePlace

STOP_GRACE_SECONDS = 30  # from the order to stop until the program is killed


@dataclass(frozen=True)
class Execution:
    """What the nodes of one attempt run."""

    spec: Spec
    program: Program
    input_artifact_id: UUID | None
    stop_grace_seconds: int = STOP_GRACE_SECONDS
    serve: ServePlace | None = None  # where its agent opens tunnels


class Kind:
    """One kind of job, as a program that runs to its end."""

    spec_kind: ClassVar[SpecKind]
    may_keep_cap: ClassVar[bool] = False  # whether resuming makes sense with the cap that there is
    may_be_idle: ClassVar[bool] = False  # whether the job stays open while it has no attempt
    outlives_a_lost_node: ClassVar[bool] = False  # whether its own runtime's gangs go on with another in its place
    has_predicted_steps: ClassVar[bool] = False  # whether the planner says what its steps need and take
    is_settled_in_parts: ClassVar[bool] = False  # its bill adds up several settlements
    # Of our own runtime's checkpoints: name of each file beside the manifest -> bytes at most; None: a training's.
    checkpoint_files: ClassVar[Mapping[str, int] | None] = None
    step_bytes_min: ClassVar[int] = 0  # of such files together, for each step that a checkpoint is said to have

    @property
    def name(self) -> str:
        """`Job.kind`."""
        return self.spec_kind.name

    # A quote, and a job that is submitted with it.

    def set_aside_usd_micros(self, quote: Quote, spec: Spec) -> int | None:
        """What is held at a time where that is less than the cap; None: the cap, at once."""
        return None

    def find_input(self, organisation: Organisation, spec: Spec) -> Artifact | None:
        """An artifact of the organisation that the spec names as its input; None: what was uploaded with the job."""
        return None

    def require_money(self, organisation: Organisation, quote: Quote, spec: Spec) -> None:
        """Raise NotEnoughMoney, or an error with its code, where the balance does not cover what will be held."""
        units = quote.payment.units_up(quote.cap_usd_micros)
        require_money(organisation.pk, quote.asset_id, quote.payment, units, cap=quote.cap_usd_micros)

    def open(self, job: Job, spec: Spec) -> None:
        """Make what the kind keeps beside a new job."""

    # An attempt.

    def execution(self, attempt: Attempt) -> Execution:
        """What the attempt runs."""
        job = attempt.job
        spec = from_wire(job.spec)
        return Execution(spec, self.program(spec), job.input_artifact_id)

    def program(self, spec: Spec) -> Program:
        """The runtime with its configuration, or the image and command."""
        return Program(
            config=self.spec_kind.config(spec),
            image=spec.image,
            command=spec.command,
            setup=spec.setup,
            requirements=spec.requirements,
        )

    def believed_reason(self, lease: Lease, reason: Reason, *, exit_code: int | None = None) -> Reason:
        """Why a lease ended, given what its node reports and what was ordered."""
        if not lease.attempt.job.spec.get("command"):
            reason = believing.of_our_program(reason, exit_code)
        reason = believing.believe(lease, believing.of_image(lease, reason))
        if self.reads_lent(lease.attempt.job):  # first: a checkpoint is not to blame for what a folder lacks
            reason = believing.of_lent(lease, reason)
        if reason in believing.OF_INPUT and self.asks_endpoints(lease.attempt.job):
            return reason  # nor for what the customer chose to ask, which may refuse any day
        return believing.of_resumed(lease, reason)

    def pins_input(self, job: Job) -> bool:
        """Whether what a resume needs beside its checkpoint is what the attempt before it had, to the byte.

        Not with a shared host folder: another node's may hold something else under the same label.
        """
        return not self.reads_lent(job)

    def asks_endpoints(self, job: Job) -> bool:
        """Whether our own runtime asks services of the customer's choice, on which its end may depend."""
        return False

    def reads_lent(self, job: Job) -> bool:
        """Whether our own runtime reads anything of the job in shared host folders."""
        return bool(job.spec.get("lent")) and bool(self.spec_kind.lent_paths(from_wire(job.spec)))

    def keeps_prepared(self, job: Job) -> bool:
        """Whether our own runtime prepares data for the job that its later attempts may use."""
        return False

    def payable_ms(self, lease: Lease, billable_ms: int) -> int:
        """For how long a lease that ends is charged, given for how long by its receipts and the ending's rule."""
        return billable_ms

    def saved_ms(self, lease: Lease) -> int:
        """Up to where a lease is paid whose provider broke it: when its newest complete checkpoint was taken."""
        saved = Artifact.objects.credible().filter(attempt=lease.attempt_id)
        part = ArtifactPart.objects.filter(lease=lease, artifact__in=saved).order_by("-artifact__step").first()
        return part.billable_ms if part else 0

    def after_attempt(
        self, job: Job, attempt: Attempt, reason: Reason, outcome: Outcome, *, message: str
    ) -> NextStep | None:
        """What the end of an attempt means for its job; None: nothing."""
        return retrying.next_step(job, reason, outcome, message=message, pins_folders=not self.reads_lent(job))

    # The end of the job.

    def late_end(self, job: Job) -> NextStep:
        """How a job ends that has nothing on nodes at its deadline."""
        message = "The job's deadline passed before it was done."
        return NextStep(JobState.FAILED, Reason.DEADLINE_EXCEEDED, message)

    def close(self, job: Job) -> None:
        """Give up what the kind keeps beside a job that ends."""

    def settle(self, job: Job) -> None:
        """Pay what each lease of a job that ended cost, all at once, and give the rest of its hold back."""
        if not holds.is_open(job.pk):
            return
        promotions.lock_job(job.pk)
        leases = Lease.objects.filter(attempt__job=job, charge_units__gt=0).select_related("node__provider")
        charges = [
            settlement.LeaseCharge(lease.pk, lease.node.provider.organisation_id, lease.charge_units)
            for lease in leases
        ]
        settled = settlement.settle_job(job_id=job.pk, charges=charges, fee_bps=settings.SOUK_FEE_BPS)
        promotions.return_unused(job.pk, spent=settled.charged)

    def charged_usd_micros(self, job: Job) -> int | None:
        """What a job that ended was charged, where that is not simply what its hold was captured for."""
        return spent_usd_micros(job)

    def explain_broken(self, what: str, billable_ms: int, lost_ms: int) -> str:
        """On the bill: why a lease that its provider broke is charged less than the node claims."""
        if not billable_ms:
            return f"It broke {what} before any checkpoint was complete: nothing is charged."
        return (
            f"It broke {what}: charged up to the last complete checkpoint, {billable_ms / 1000:.1f} s in; "
            f"the {lost_ms / 1000:.1f} s since then are refunded."
        )

    # What people may do in between.

    def require_more(self, job: Job, payment: Payment, units: int, *, cap_usd_micros: int) -> None:
        """Raise NotEnoughMoney where a hold could not be made larger by so many units."""
        require_money(job.organisation_id, job.quote.asset_id, payment, units, cap=cap_usd_micros)

    def hold_more(self, job: Job, units: int) -> None:
        """Hold so many units more of a job that is resumed, where it has a hold."""
        if units and holds.is_open(job.pk):
            promotions.draw(job.organisation_id, job.pk, units, asset_id=job.quote.asset_id)
            holds.extend_hold(job.pk, amount=units)

    def to_repeat(self, job: Job) -> tuple[Spec, Artifact | None]:
        """The spec and the input of another job like one that ended."""
        return from_wire(job.spec), job.input_artifact
