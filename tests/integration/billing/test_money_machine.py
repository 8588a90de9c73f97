"""Any order of deposits, holds, extensions, receipts, settlements and releases leaves the ledger true."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID, uuid4

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from billing import deposits, holds, ledger, metering, settlement
from billing.errors import AlreadySettled, ChargeAboveHold, HoldNotFound, InsufficientFunds
from billing.kinds import AccountKind
from billing.settlement import LeaseCharge
from marketplace.foundation import clock
from provider_agent.protocol import charge
from tests.integration.billing.scenes import Meter, assert_ledger_is_true, fund

AMOUNTS = st.integers(min_value=1, max_value=5_000)
FEE_BPS = 1000


@dataclass
class ModelJob:
    """What the test believes of one job."""

    meter: Meter
    provider: UUID
    held: int = 0
    state: str = "new"  # new, open, released, settled
    charged: int = 0


@dataclass
class ModelMoney:
    """What the test believes of all money."""

    available: int = 0
    fees: int = 0
    pending: dict[UUID, int] = field(default_factory=dict)
    spendable: dict[UUID, int] = field(default_factory=dict)


class Money(RuleBasedStateMachine):
    """A second, naive set of books beside the real one; they agree after every step."""

    jobs = Bundle("jobs")

    @initialize()
    def open_books(self) -> None:
        self.customer = uuid4()
        self.providers = [uuid4(), uuid4()]
        self.model = ModelMoney()
        self.fees_before = ledger.balance(None, AccountKind.FEE_REVENUE)
        self.all_jobs: list[ModelJob] = []

    @rule(amount=AMOUNTS)
    def deposit(self, amount: int) -> None:
        fund(self.customer, amount)
        self.model.available += amount

    @rule(amount=AMOUNTS)
    def deposit_told_twice(self, amount: int) -> None:
        reference = str(uuid4())
        for _ in range(2):
            deposits.credit(self.customer, amount, reference=reference, actor="operator@example.org")
        self.model.available += amount

    @rule(target=jobs, provider=st.integers(min_value=0, max_value=1), rate=st.integers(0, 7_200_000))
    def new_job(self, provider: int, rate: int) -> ModelJob:
        job = ModelJob(Meter(rate=rate), self.providers[provider])
        self.all_jobs.append(job)
        return job

    @rule(job=jobs, amount=AMOUNTS)
    def place(self, job: ModelJob, amount: int) -> None:
        if job.state == "open":
            amount = job.held  # a repeat
        try:
            holds.place_hold(owner_id=self.customer, job_id=job.meter.job_id, amount=amount)
        except InsufficientFunds as refused:
            assert job.state in {"new", "released"}
            assert refused.missing == amount - self.model.available > 0
        except AlreadySettled:
            assert job.state == "settled"
        else:
            if job.state != "open":
                self.model.available -= amount
                job.held, job.state = amount, "open"

    @rule(job=jobs, amount=AMOUNTS)
    def extend(self, job: ModelJob, amount: int) -> None:
        try:
            holds.extend_hold(job.meter.job_id, amount=amount)
        except HoldNotFound:
            assert job.state != "open"
        except InsufficientFunds:
            assert amount > self.model.available
        else:
            self.model.available -= amount
            job.held += amount

    @rule(job=jobs, ms=st.integers(min_value=0, max_value=3_000), is_resent=st.booleans())
    def run_for(self, job: ModelJob, ms: int, is_resent: bool) -> None:
        before = job.meter.made[-1].receipt.billable_ms if job.meter.made else 0
        job.meter.read(before + ms)
        receipts = job.meter.made if is_resent else job.meter.made[-1:]
        seq = metering.accept_receipts(job.meter.terms, receipts[-100:], observed_ms=before + ms)
        assert seq == len(job.meter.made)

    @rule(job=jobs)
    def settle(self, job: ModelJob) -> None:
        newest = metering.newest(job.meter.lease_id)
        owed = newest.cumulative_amount if newest else 0
        charges = [LeaseCharge(job.meter.lease_id, job.provider, owed)]
        try:
            settled = settlement.settle_job(job_id=job.meter.job_id, charges=charges, fee_bps=FEE_BPS)
        except HoldNotFound:
            assert job.state in {"new", "released"}
            return
        except ChargeAboveHold:
            assert job.state == "open" and owed > job.held
            return
        if job.state == "open":
            fee = owed * FEE_BPS // 10_000
            self.model.available += job.held - owed
            self.model.fees += fee
            self.model.pending[job.provider] = self.model.pending.get(job.provider, 0) + owed - fee
            job.state, job.charged, job.held = "settled", owed, 0
        assert job.state == "settled"
        assert settled.charged == job.charged

    @rule(job=jobs)
    def release(self, job: ModelJob) -> None:
        try:
            holds.release_hold(job.meter.job_id)
        except (HoldNotFound, AlreadySettled) as refused:
            assert job.state == ("new" if isinstance(refused, HoldNotFound) else "settled")
            return
        self.model.available += job.held
        job.held, job.state = 0, "released"

    @rule()
    def window_passes(self) -> None:
        settlement.release_pending(clock.now() + timedelta(days=365))
        for provider, amount in self.model.pending.items():
            self.model.spendable[provider] = self.model.spendable.get(provider, 0) + amount
        self.model.pending.clear()

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        assert ledger.trial_balance().get("USD", 0) == 0
        assert all(totals.is_balanced for totals in ledger.asset_totals())
        assert ledger.balance(self.customer, AccountKind.CUSTOMER_AVAILABLE) == self.model.available
        assert ledger.balance(self.customer, AccountKind.JOB_HOLD) == sum(job.held for job in self.all_jobs)
        assert ledger.balance(None, AccountKind.FEE_REVENUE) - self.fees_before == self.model.fees
        for provider in self.providers:
            assert ledger.balance(provider, AccountKind.PROVIDER_PENDING) == self.model.pending.get(provider, 0)
            assert ledger.balance(provider, AccountKind.PROVIDER_AVAILABLE) == self.model.spendable.get(provider, 0)

    def teardown(self) -> None:
        assert_ledger_is_true()
        for job in self.all_jobs if hasattr(self, "all_jobs") else []:
            newest = metering.newest(job.meter.lease_id)
            if newest is not None:
                assert newest.cumulative_amount == charge(job.meter.rate, newest.billable_ms)


def test_the_ledger_agrees_with_naive_books_after_every_step(db: None) -> None:
    run_state_machine_as_test(
        Money,
        settings=settings(
            max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
