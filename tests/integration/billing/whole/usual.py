"""What takes several rules in a row, in one step: by chance alone it would hardly ever come about."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from billing.models import Payout
from tests.integration.billing.whole.leaving import Whole
from tests.integration.billing.whole.machine import amounts, customers, providers, taken, which
from tests.integration.billing.whole.paying import CENTS
from tests.integration.billing.whole.world import DAY

LONG_MS = 3_900_000
YEAR_MS = 365 * 86_400_000
NOT_A_MULTIPLE_OF_THREE = 4  # then it is a share of what there is
MUCH = 9_999_999  # a multiple of three, and so taken as it is


class Usual(Whole):
    """All of billing, with its usual ways made short."""

    @rule(
        who=customers,
        provider=providers,
        is_token=st.booleans(),
        number=which,
        end=st.sampled_from(["decided", "withdrawn", "unanswered", "open"]),
    )
    def dispute_at_once(self, who: str, provider: str, is_token: bool, number: int, end: str) -> None:
        """A job runs, is settled and contested; then one of the ways in which a dispute ends."""
        self.job_that_pays(who, provider, is_token)
        self.contest(number)
        if end == "decided":
            self.decide(number, (2, 2), 1)
        elif end == "withdrawn":
            self.withdraw_or_answer(number, False)
        elif end == "unanswered":
            self.silence_is_an_answer()

    @rule(who=customers, provider=providers, share=st.integers(1, 4), number=which, part=st.integers(0, 4))
    def arbitrate_at_once(self, who: str, provider: str, share: int, number: int, part: int) -> None:
        """The same on the chain, where the arbiter decides."""
        self.lease_on_chain(who, provider, share)
        self.challenge(4 * number + 1)
        self.follow()
        self.resolve(number, part)

    @rule(who=customers, cents=CENTS)
    def automatic_at_once(self, who: str, cents: int) -> None:
        """A card, a rule above what there is, and its first run."""
        self.save_card(who)
        has = self.books.balance("customer_available", self.owners[who]) // 10_000
        if has < cents:
            self.set_automatic(who, cents)
            self.run_automatic()
            self.make_calls()

    @rule(
        who=customers,
        provider=providers,
        is_token=st.booleans(),
        number=which,
        end=st.sampled_from(["arrives", "comes back", "is refused"]),
    )
    def paid_at_once(self, who: str, provider: str, is_token: bool, number: int, end: str) -> None:
        """What was just earned leaves its window and is paid out on request; the bank or Stripe may not take it."""
        self.job_that_pays(who, provider, is_token)
        self.windows_pass()
        self.listen()
        failed = Payout.objects.filter(state="failed").count()
        self.pay_now(provider, is_token)
        if end == "is refused":
            self.stripe_asks_more(provider)
        with self.line_is_good():
            self.make_calls()
        taken["a payout is refused"] += Payout.objects.filter(state="failed").count() > failed
        self.follow_payouts()
        if end == "comes back":
            self.bank_sends_back(number)
            self.listen()
            self.follow_payouts()
            self.retry_payout(number)

    @rule(who=customers, provider=providers, cents=CENTS, is_paid_out=st.booleans())
    def charged_back_at_once(self, who: str, provider: str, cents: int, is_paid_out: bool) -> None:
        """Paid by card, spent to the last unit, earned and perhaps paid out; then the bank charges it back."""
        with self.line_is_good():
            self.pay_at_once(who, cents, False)
        self.spend_all(who, provider)
        self.windows_pass()
        if is_paid_out:
            self.pay_now(provider, False)
            self.make_calls()
        mine = [one for one in self.charges() if one["metadata"]["organisation_id"] == str(self.owners[who])]
        mine = [one for one in mine if not one["disputed"] and one["amount"] > one["amount_refunded"]]
        if mine:
            self.world.stripe.open_dispute(mine[-1]["id"])
            self.did("charged_back_at_once")

    def spend_all(self, who: str, provider: str) -> None:
        self.thaw(self.owners[who])
        known = len(self.model.jobs)
        self.place(who, provider, False, NOT_A_MULTIPLE_OF_THREE, 4)
        if len(self.model.jobs) > known:
            last = self.open_jobs().index(self.model.jobs[-1])
            self.run(last, YEAR_MS, False, 1)
            self.settle(last, False)

    @rule(who=customers, amount=amounts)
    def gift_nobody_uses(self, who: str, amount: int) -> None:
        """Given for a day, and the day passes."""
        self.give(who, amount, 1, False)
        self.let_pass(DAY + 1)
        self.gifts_expire()

    def job_that_pays(self, who: str, provider: str, is_token: bool) -> None:
        """Of a customer who may spend: who was frozen by a chargeback is thawed by an operator before."""
        self.thaw(self.owners[who])
        self.job_at_once(who, provider, is_token, MUCH, LONG_MS)
