"""`kind: serve`: an endpoint whose replicas come and go, each an attempt, paid from a prepaid window."""

from __future__ import annotations

from django.conf import settings

from jobs.endpoints import payments, replicas, versions
from jobs.endpoints.gateways import place_of
from jobs.kinds.base import Execution, Kind
from jobs.kinds.retrying import NextStep
from jobs.models import Artifact, Attempt, EndpointVersion, Job, Lease, Quote
from jobs.payment.terms import Payment
from jobs.pricing.costs import charged_of
from jobs.spec import Spec, from_wire
from jobs.spec.kinds.serve import ServeSpec
from jobs.states import JobState
from marketplace.accounts.models import Organisation
from provider_agent.protocol import Fault, Outcome, Program, Reason

ENGINE_END_SECONDS = 15  # for a replica's engine to end, after its requests have drained


class Serve(Kind):
    """An endpoint: open until it is cancelled, fails, or comes to its deadline; settled day by day."""

    spec_kind = ServeSpec()
    may_keep_cap = True  # its window moves on with the money that is there
    may_be_idle = True
    is_settled_in_parts = True

    def set_aside_usd_micros(self, quote: Quote, spec: Spec) -> int | None:
        """The prepaid window."""
        return payments.quoted_window(quote, spec)

    def find_input(self, organisation: Organisation, spec: Spec) -> Artifact | None:
        """The output of the training that is to be served."""
        return versions.weights_of(organisation, spec)

    def require_money(self, organisation: Organisation, quote: Quote, spec: Spec) -> None:
        """The first window has to be there."""
        payments.require_window(organisation, quote, spec)

    def open(self, job: Job, spec: Spec) -> None:
        """The endpoint with its first version."""
        versions.open_endpoint(job, spec)

    def execution(self, attempt: Attempt) -> Execution:
        """The version that the attempt's replica serves, and where its agent opens tunnels."""
        version: EndpointVersion = attempt.replica.version  # made in the transaction that makes the attempt
        spec = from_wire(version.spec)
        return Execution(
            spec=spec,
            program=self.program(spec),
            input_artifact_id=version.input_artifact_id,
            stop_grace_seconds=settings.SOUK_DRAIN_SECONDS + ENGINE_END_SECONDS,
            serve=place_of(version),
        )

    def program(self, spec: Spec) -> Program:
        """The serving runtime."""
        return super().program(spec).model_copy(update={"runtime": "serve"})

    def believed_reason(self, lease: Lease, reason: Reason, *, exit_code: int | None = None) -> Reason:
        """Serving never completes: of what left by itself nothing is known but what gateways saw, and that is paid."""
        if reason == Reason.COMPLETED:
            return Reason(lease.stop_reason) if lease.stop_reason else Reason.INTERNAL
        return super().believed_reason(lease, reason, exit_code=exit_code)

    def payable_ms(self, lease: Lease, billable_ms: int) -> int:
        """At least what was settled of the lease already, and at most what the prepaid window pays for."""
        return payments.bounded_ms(lease, billable_ms)

    def saved_ms(self, lease: Lease) -> int:
        """It saves nothing: how long a gateway had it as ready."""
        return replicas.seen_ms(lease) or 0

    def after_attempt(
        self, job: Job, attempt: Attempt, reason: Reason, outcome: Outcome, *, message: str
    ) -> NextStep | None:
        """The endpoint continues with its other replicas, and with new ones.

        When its last replica has ended, a job that was cancelled, is past its deadline, or can never be served ends
        too; a job without money for the next prepaid window is paused.
        """
        replicas.gone(attempt, reason=reason)
        if job.attempts.live().exists():
            return None
        if job.cancel_requested_at is not None:
            return NextStep(JobState.CANCELLED, Reason(job.cancel_reason))
        if job.is_late:
            return self.late_end(job)
        was_up = job.state == JobState.RUNNING
        if outcome.fault == Fault.CUSTOMER and reason != Reason.BUDGET_EXHAUSTED and versions.is_hopeless(job):
            return NextStep(JobState.FAILED, reason, message)
        if was_up and reason == Reason.BUDGET_EXHAUSTED and not payments.has_window(job):
            return NextStep(JobState.PAUSED, reason, message)
        return None if was_up else NextStep(JobState.RECOVERING, reason, message)

    def late_end(self, job: Job) -> NextStep:
        """An endpoint that was up has done what it should."""
        if job.state == JobState.RUNNING:
            return NextStep(JobState.COMPLETED, Reason.DEADLINE_EXCEEDED)
        return super().late_end(job)

    def close(self, job: Job) -> None:
        """The endpoint's name is free again."""
        versions.close_endpoint(job)

    def settle(self, job: Job) -> None:
        """What was not settled day by day."""
        payments.settle_rest(job)

    def charged_usd_micros(self, job: Job) -> int | None:
        """All that its leases cost, over all settlements."""
        return charged_of(job).usd_micros

    def explain_broken(self, what: str, billable_ms: int, lost_ms: int) -> str:
        """On the bill: up to which moment the gateways had the replica ready."""
        return (
            f"It broke {what}: charged up to the last moment at which a gateway had it ready for callers, "
            f"{billable_ms / 1000:.1f} s in."
        )

    def require_more(self, job: Job, payment: Payment, units: int, *, cap_usd_micros: int) -> None:
        """Require nothing here: only the prepaid window is held, and `hold_more` requires that."""

    def hold_more(self, job: Job, units: int) -> None:
        """Hold what the prepaid window lacks."""
        payments.resume_window(job)

    def to_repeat(self, job: Job) -> tuple[Spec, Artifact | None]:
        """What was deployed last and not rolled back."""
        last = versions.last_version(job)
        return (from_wire(last.spec), last.input_artifact) if last else super().to_repeat(job)
