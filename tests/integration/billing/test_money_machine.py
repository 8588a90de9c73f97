"""Any order of deposits, holds, extensions, receipts, settlements, releases, payouts, exchanges, freezes and
corrections leaves the ledger true."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from billing.account_kinds import AccountKind
from billing.books import deposits, ledger
from billing.books.chart_of_accounts import open_account
from billing.books.exchange import Quote, exchange
from billing.charging import holds, metering, settlement
from billing.charging.settlement import LeaseCharge
from billing.errors import (
    AccountFrozen,
    AlreadySettled,
    AmountInvalid,
    ChargeAboveHold,
    HoldNotFound,
    InsufficientFunds,
)
from billing.models import Account, Asset, Transfer
from billing.rails.registry import source_of
from billing.transfer_codes import TransferCode, TransferMode
from marketplace.foundation import clock
from provider_agent.protocol import charge
from tests.integration.billing.scenes import Meter, assert_ledger_is_true, fund

AMOUNTS = st.integers(min_value=1, max_value=5_000)
FEE_BPS = 1000
TOKEN = 7


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
    tokens: int = 0
    leaving: int = 0  # pending towards a rail
    left: int = 0  # posted towards it
    is_frozen: bool = False


class Money(RuleBasedStateMachine):
    """A second, naive set of books beside the real one; they agree after every step."""

    jobs = Bundle("jobs")

    @initialize()
    def open_books(self) -> None:
        self.customer = uuid4()
        self.providers = [uuid4(), uuid4()]
        self.model = ModelMoney()
        self.fees_before = ledger.balance(None, AccountKind.FEE_REVENUE)
        token = Asset(id=TOKEN, code="TOK", scale=18, kind="erc20", chain_id=1, contract="0x" + "1" * 40)
        Asset.objects.bulk_create([token], ignore_conflicts=True)
        fund(self.customer, 1)
        self.model.available += 1
        self.payouts: list[Transfer] = []
        self.all_jobs: list[ModelJob] = []

    def account(self, kind: AccountKind, owner_id: UUID | None = None, asset_id: int = 1) -> Account:
        return open_account(kind, owner_id, asset_id=asset_id)

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
        except AccountFrozen:
            assert self.model.is_frozen and job.state in {"new", "released"}
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
        except AccountFrozen:
            assert self.model.is_frozen
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

    @rule()
    def freeze_or_thaw(self) -> None:
        self.model.is_frozen = not self.model.is_frozen
        account = self.account(AccountKind.CUSTOMER_AVAILABLE, self.customer)
        Account.objects.filter(pk=account.pk).update(is_frozen=self.model.is_frozen)

    @rule(amount=AMOUNTS)
    def deposit_tokens(self, amount: int) -> None:
        more = {"source": source_of("chain"), "asset_id": TOKEN, "actor": "test"}
        deposits.credit(self.customer, amount, reference=str(uuid4()), **more)
        self.model.tokens += amount

    @rule(sold=AMOUNTS, numerator=st.integers(1, 9), denominator=st.integers(1, 9))
    def exchange_tokens(self, sold: int, numerator: int, denominator: int) -> None:
        try:
            exchange(owner_id=self.customer, sold=sold, quote=Quote(str(uuid4()), TOKEN, 1, numerator, denominator))
        except AmountInvalid:
            assert sold * numerator < denominator
        except InsufficientFunds:
            assert sold > self.model.tokens
        else:
            self.model.tokens -= sold
            self.model.available += sold * numerator // denominator

    @rule(amount=AMOUNTS, provider=st.integers(min_value=0, max_value=1))
    def reserve_payout(self, amount: int, provider: int) -> None:
        owner_id = self.providers[provider]
        source = self.account(AccountKind.PROVIDER_AVAILABLE, owner_id)
        target = self.account(AccountKind.PAYOUT_CLEARING, owner_id)
        new = ledger.NewTransfer(source, target, amount, TransferCode.PAYOUT, mode=TransferMode.PENDING)
        spendable = self.model.spendable.get(owner_id, 0)
        try:
            self.payouts += ledger.post([new])
        except InsufficientFunds as refused:
            assert refused.missing == amount - spendable > 0
        else:
            self.model.spendable[owner_id] = spendable - amount
            self.model.leaving += amount

    @rule(amount=st.integers(min_value=0, max_value=5_000))
    def resolve_payout(self, amount: int) -> None:
        """Post all or a part of the oldest payout, or void it; a second resolution is refused."""
        if not self.payouts:
            return
        pending = self.payouts.pop(0)
        posted = min(amount, pending.amount)
        mode = TransferMode.POST if posted else TransferMode.VOID
        new = ledger.NewTransfer(
            pending.debit,
            pending.credit,
            posted or pending.amount,
            TransferCode.PAYOUT,
            mode=mode,
            pending_id=pending.pk,
        )
        ledger.post([new])
        with pytest.raises(IntegrityError, match="pending_resolved_once"), transaction.atomic():
            ledger.post([new])
        owner_id = pending.debit.owner_id
        assert owner_id is not None
        self.model.spendable[owner_id] += pending.amount - posted
        self.model.leaving -= pending.amount
        self.model.left += posted

    @rule(amount=AMOUNTS)
    def correct(self, amount: int) -> None:
        """A correction is a new transfer, and takes from nobody what is not there."""
        wallet, cash = (
            self.account(AccountKind.CUSTOMER_AVAILABLE, self.customer),
            self.account(AccountKind.OPERATOR_CASH),
        )
        try:
            ledger.post([ledger.NewTransfer(wallet, cash, amount, TransferCode.CORRECTION, external_ref="typed twice")])
        except AccountFrozen:
            assert self.model.is_frozen
        except InsufficientFunds:
            assert amount > self.model.available
        else:
            self.model.available -= amount

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        assert ledger.trial_balance().get("USD", 0) == 0
        assert all(totals.is_balanced for totals in ledger.asset_totals())
        assert ledger.balance(self.customer, AccountKind.CUSTOMER_AVAILABLE) == self.model.available
        assert ledger.balance(self.customer, AccountKind.JOB_HOLD) == sum(job.held for job in self.all_jobs)
        assert ledger.balance(None, AccountKind.FEE_REVENUE) - self.fees_before == self.model.fees
        assert ledger.trial_balance().get("TOK", 0) == 0
        assert ledger.balance(self.customer, AccountKind.CUSTOMER_AVAILABLE, asset_id=TOKEN) == self.model.tokens
        clearing = [ledger.balance(who, AccountKind.PAYOUT_CLEARING) for who in self.providers]
        assert sum(clearing) == self.model.left
        for provider in self.providers:
            assert ledger.balance(provider, AccountKind.PROVIDER_PENDING) == self.model.pending.get(provider, 0)
            assert ledger.balance(provider, AccountKind.PROVIDER_AVAILABLE) == self.model.spendable.get(provider, 0)

    def teardown(self) -> None:
        assert_ledger_is_true()
        for job in self.all_jobs if hasattr(self, "all_jobs") else []:
            newest = metering.newest(job.meter.lease_id)
            if newest is not None:
                assert newest.cumulative_amount == charge(job.meter.rate, newest.billable_ms)


def test_P01_P02_P03_P04_P07_P08_the_ledger_agrees_with_naive_books_after_every_step(db: None) -> None:
    run_state_machine_as_test(
        Money,
        settings=settings(
            max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
