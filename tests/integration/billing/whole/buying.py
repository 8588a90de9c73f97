"""Rules of what is paid out of balances: holds, receipts, settlements, disputes, offences, gifts, exchange."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from uuid import uuid4

from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from billing.account_kinds import AccountKind
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.books.ledger import NewTransfer, post
from billing.charging import holds, metering, promotions, settlement
from billing.charging.settlement import LeaseCharge
from billing.contesting import disputes, offences
from billing.contesting.offences import Victim
from billing.contesting.penalties import EQUIVOCATION
from billing.errors import AccountFrozen, BillingError, ChargeAboveHold, InsufficientFunds
from billing.models import Dispute
from billing.models.ledger import USD_ASSET_ID
from billing.transfer_codes import TransferCode
from marketplace.foundation.errors import StateConflict
from provider_agent.protocol import SignedReceipt
from tests.integration.billing.scenes import DOLLAR, Meter
from tests.integration.billing.whole.machine import BillingMachine, amounts, customers, providers, taken, which
from tests.integration.billing.whole.model import FEE_BPS, Job

WINDOW_SECONDS = 86_400


class Buying(BillingMachine):
    """Jobs from their hold to the provider's balance, in dollars and in tokens."""

    def open_jobs(self) -> list[Job]:
        return [job for job in self.model.jobs if job.state == "open"]

    # --- holds

    @rule(who=customers, provider=providers, is_token=st.booleans(), amount=amounts, share=st.integers(1, 4))
    def place(self, who: str, provider: str, is_token: bool, amount: int, share: int) -> None:
        owner, asset = self.owners[who], self.assets[is_token]
        has = self.books.balance("customer_available", owner, asset)
        amount = max(1, has * share // 4) if amount % 3 else amount
        job = Job(uuid4(), owner, asset, Meter(cap=10**18), self.owners[provider])
        before = self.now()

        def verb() -> None:
            promotions.draw(owner, job.id, amount, asset_id=asset)
            holds.place_hold(owner_id=owner, job_id=job.id, amount=amount, asset_id=asset)

        try:
            with transaction.atomic():
                verb()
        except (InsufficientFunds, AccountFrozen) as refused:
            taken[f"place refused: {type(refused).__name__}"] += 1
            return
        self.did("place")
        self.model.draw(job, amount, before)
        self.model.spend[owner, asset] -= amount
        job.held = amount
        self.model.jobs.append(job)
        again = holds.place_hold(owner_id=owner, job_id=job.id, amount=amount, asset_id=asset)
        assert again.job_id == job.id

    @rule(who=customers, provider=providers, is_token=st.booleans(), amount=amounts, ms=st.integers(0, 4_000_000))
    def job_at_once(self, who: str, provider: str, is_token: bool, amount: int, ms: int) -> None:
        """From its hold to its settlement, in one step."""
        known = len(self.model.jobs)
        self.place(who, provider, is_token, amount, 2)
        if len(self.model.jobs) > known:
            last = self.open_jobs().index(self.model.jobs[-1])
            self.run(last, ms, False, 1)
            self.settle(last, False)
            self.release_due()  # a withdrawal now gets nothing of it
            self.did("job_at_once")

    @precondition(lambda self: self.open_jobs())
    @rule(number=which, amount=amounts)
    def extend(self, number: int, amount: int) -> None:
        job = self.pick(self.open_jobs(), number)
        assert job is not None
        errors = (InsufficientFunds, AccountFrozen)
        if self.tries("extend", lambda: holds.extend_hold(job.id, amount=amount), *errors):
            self.model.spend[job.owner, job.asset] -= amount
            job.held += amount

    @precondition(lambda self: self.open_jobs())
    @rule(number=which, ms=st.integers(0, 4_000_000), is_resent=st.booleans(), forged=st.integers(0, 5))
    def run(self, number: int, ms: int, is_resent: bool, forged: int) -> None:
        """The node signs what it ran for; sometimes it lies, and is not believed."""
        job = self.pick(self.open_jobs(), number)
        assert job is not None
        meter = job.meter
        ran = meter.made[-1].receipt.billable_ms if meter.made else 0
        if not forged:
            for lie in self.lies(meter, ran, ms):
                self.tries("lie", partial(metering.accept_receipts, meter.terms, [lie], observed_ms=ran), BillingError)
                assert not taken["lie"], "a receipt was believed that claims what it may not"
            return
        meter.read(ran + ms)
        sent = meter.made if is_resent else meter.made[-1:]
        metering.accept_receipts(meter.terms, sent[-50:], observed_ms=ran + ms)
        self.did("run")

    def lies(self, meter: Meter, ran: int, ms: int) -> Iterator[SignedReceipt]:
        """Above the price, above what was seen, by another key, and against what was signed before."""
        yield meter.sign(ran + ms, cumulative_amount=10**12)
        yield meter.sign(ran + metering.HEARTBEAT_MS + 1 + ms)
        yield meter.sign(ran, key=Meter().key)
        if meter.made:
            yield meter.sign(ran, seq=len(meter.made), meter_hash="0x" + 32 * "07")

    @precondition(lambda self: any(job.state == "settled" and job.meter.made for job in self.model.jobs))
    @rule(number=which, ms=st.integers(1, 4_000_000))
    def receipt_after_the_end(self, number: int, ms: int) -> None:
        """A receipt that comes when its job is settled, and whoever settles again for it, change nothing."""
        job = self.pick([job for job in self.model.jobs if job.state == "settled" and job.meter.made], number)
        assert job is not None
        before, meter = self.fingerprint(), job.meter
        more = meter.read(meter.made[-1].receipt.billable_ms + ms)
        metering.accept_receipts(meter.terms, [more], observed_ms=more.receipt.billable_ms)
        charges = [LeaseCharge(meter.lease_id, job.provider, more.receipt.cumulative_amount)]
        settlement.settle_job(job_id=job.id, charges=charges, fee_bps=FEE_BPS)
        assert self.fingerprint() == before, "a receipt counted that came after the end"
        self.did("receipt_after_the_end")

    @precondition(lambda self: self.open_jobs())
    @rule(number=which, is_repeated=st.booleans())
    def settle(self, number: int, is_repeated: bool) -> None:
        job = self.pick(self.open_jobs(), number)
        assert job is not None
        newest = metering.newest(job.meter.lease_id)
        owed = int(newest.cumulative_amount) if newest else 0
        if owed > job.held:  # the server stops a lease that has used its hold up
            charge = [LeaseCharge(job.meter.lease_id, job.provider, owed)]
            verb = lambda: settlement.settle_job(job_id=job.id, charges=charge, fee_bps=FEE_BPS)  # noqa: E731
            self.tries("overcharge", verb, ChargeAboveHold)
            assert not taken["overcharge"]
            owed = job.held
        charges = [LeaseCharge(job.meter.lease_id, job.provider, owed)] if owed else []
        for _ in range(1 + is_repeated):
            with transaction.atomic():
                promotions.lock_job(job.id)
                settled = settlement.settle_job(job_id=job.id, charges=charges, fee_bps=FEE_BPS)
                promotions.return_unused(job.id, spent=settled.charged)
        share = self.model.settle(job, job.meter.lease_id, owed, settled.challenge_until)
        if not owed:
            job.shares.clear()
        self.did("settle" if share and owed else "settle for nothing")

    @precondition(lambda self: self.open_jobs())
    @rule(number=which)
    def release(self, number: int) -> None:
        job = self.pick(self.open_jobs(), number)
        assert job is not None
        with transaction.atomic():
            promotions.lock_job(job.id)
            holds.release_hold(job.id)
            promotions.return_unused(job.id, spent=0)
        self.model.spend[job.owner, job.asset] += job.held
        self.model.spend[job.owner, job.asset] -= job.give_back(0)
        job.held, job.state = 0, "released"
        self.did("release")

    @rule()
    def windows_pass(self) -> None:
        self.let_pass(WINDOW_SECONDS)
        if self.release_due():
            self.did("windows_pass")

    def release_due(self) -> int:
        """Pay whose window is over, and no other."""
        now = self.now()
        moved = settlement.release_pending(now) + offences.release_rest(now)
        self.model.window_passes(now)
        return moved

    # --- disputes and offences

    @rule(number=which)
    def contest(self, number: int) -> None:
        now = self.now()
        ripe = [s for s in self.model.shares if s.state == "pending" and not s.was_contested and s.until > now]
        share = self.pick(ripe, number)
        if share is None:
            return
        job = share.job
        dispute = disputes.open_dispute(
            customer_id=job.owner, lease_id=share.lease, text="It did not run.", actor="alice@example.org"
        )
        share.state, share.was_contested, share.dispute = "disputed", True, dispute.pk
        share.frozen = share.paid - share.taken + share.fee
        self.model.fees[job.asset] -= share.fee
        self.did("contest")

    @rule(number=which, parts=st.tuples(st.integers(0, 4), st.integers(0, 4)), is_wrong=st.integers(0, 4))
    def decide(self, number: int, parts: tuple[int, int], is_wrong: int) -> None:
        share = self.pick([s for s in self.model.shares if s.state == "disputed"], number)
        if share is None or share.dispute is None:
            return
        customer = share.frozen * parts[0] // 4
        provider = (share.frozen - customer) * parts[1] // 4
        split = {"to_customer": customer, "to_provider": provider, "to_platform": share.frozen - customer - provider}
        dispute = share.dispute
        if not is_wrong:
            more = split | {"to_customer": customer + 1}
            self.tries("bad split", lambda: disputes.decide(dispute, **more, text="", actor="op"), BillingError)
            assert not taken["bad split"], "P24"
            return
        disputes.decide(dispute, **split, text="So it is.", actor="operator")
        self.model.decide(share, *split.values())
        self.did("decide")
        self.tries("second decision", lambda: disputes.decide(dispute, **split, text="", actor="op"), StateConflict)
        assert not taken["second decision"], "P24"

    @rule(number=which, is_answered=st.booleans())
    def withdraw_or_answer(self, number: int, is_answered: bool) -> None:
        share = self.pick([s for s in self.model.shares if s.state == "disputed"], number)
        if share is None or share.dispute is None:
            return
        dispute = share.dispute
        if is_answered:
            verb = lambda: disputes.answer(dispute, provider_id=share.provider, text="It ran.", actor="bob")  # noqa: E731
            self.tries("answer", verb, StateConflict)
            return
        disputes.withdraw(dispute, customer_id=share.job.owner, actor="alice")
        self.model.fees[share.job.asset] += share.fee
        share.state, share.frozen = "pending", 0
        self.did("withdraw a dispute")

    @rule()
    def silence_is_an_answer(self) -> None:
        """Nobody answered for days: the customer has it back."""
        self.let_pass(4 * WINDOW_SECONDS)
        now = self.now()
        silent = set(Dispute.objects.filter(state="opened", answer_until__lte=now).values_list("pk", flat=True))
        disputes.sweep(now)
        for share in self.model.shares:
            if share.dispute in silent and share.state == "disputed":
                self.model.decide(share, share.frozen, 0, 0)
                self.did("silence_is_an_answer")

    @rule(number=which, claimed=amounts, is_repeated=st.booleans())
    def offend(self, number: int, claimed: int, is_repeated: bool) -> None:
        """A node contradicts itself: pending pay first, then the reserve, then the stake, never more than is there."""
        share = self.pick([s for s in self.model.shares if s.job.asset == USD_ASSET_ID], number)
        if share is None:
            return
        provider, job = share.provider, share.job
        victim, offence_id = Victim(job.owner, job.id, share.lease), uuid4()
        reserve = self.books.balance("provider_reserve", provider)
        penalty = left = min(max(claimed, DOLLAR), 100 * DOLLAR)
        for _ in range(1 + is_repeated):
            offence = offences.record(provider, offence_id, EQUIVOCATION, {}, claimed=claimed, victim=victim)
        mine = [s for s in self.model.shares if (s.provider, s.job.asset, s.state) == (provider, 1, "pending")]
        for each in sorted(mine, key=lambda each: each.until):
            part = min(left, each.paid - each.taken)
            each.taken += part
            left -= part
        from_reserve = min(left, reserve)
        from_stake = min(left - from_reserve, self.model.stake[provider])
        self.model.earned[provider, USD_ASSET_ID] -= from_reserve
        self.model.stake[provider] -= from_stake
        expected = penalty - left + from_reserve + from_stake
        assert (offence.taken, offence.compensated) == (expected, expected), "P25"
        self.model.compensate(job, expected)
        self.did("offend")

    @rule(who=providers, amount=amounts)
    def give_stake(self, who: str, amount: int) -> None:
        """Collateral from outside."""
        names = [AccountName(AccountKind.OPERATOR_CASH), AccountName(AccountKind.PROVIDER_STAKE, self.owners[who])]
        cash, stake = open_accounts(names)
        post([NewTransfer(cash, stake, amount, TransferCode.STAKE)])
        self.model.stake[self.owners[who]] += amount
        self.did("give_stake")
