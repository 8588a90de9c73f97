"""What takes several rules in a row, in one step: by chance alone it would hardly ever come about."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from billing.models import Account
from tests.integration.billing.whole.leaving import Whole
from tests.integration.billing.whole.paying import CENTS
from tests.integration.billing.whole.story import customers, providers, which

LONG_MS = 3_900_000
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

    @rule(who=customers, provider=providers, is_token=st.booleans(), number=which, is_returned=st.booleans())
    def paid_at_once(self, who: str, provider: str, is_token: bool, number: int, is_returned: bool) -> None:
        """What was just earned leaves its window and is paid out when asked for; a bank may send it back."""
        self.job_that_pays(who, provider, is_token)
        self.windows_pass()
        self.listen()
        self.pay_now(provider, is_token)
        with self.line_is_good():
            self.make_calls()
        self.follow_payouts()
        if is_returned:
            self.bank_sends_back(number)
            self.listen()
            self.follow_payouts()
            self.retry_payout(number)

    def job_that_pays(self, who: str, provider: str, is_token: bool) -> None:
        """Of a customer who may spend: who was frozen by a chargeback is thawed by an operator before."""
        frozen = Account.objects.filter(owner_id=self.owners[who], kind="customer_available", is_frozen=True)
        frozen.update(is_frozen=False)
        self.job_at_once(who, provider, is_token, MUCH, LONG_MS)
