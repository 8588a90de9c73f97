"""Rules of what moves without a job: gifts, the exchange of tokens, and what an operator freezes."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from hypothesis import strategies as st
from hypothesis.stateful import rule

from billing.account_kinds import AccountKind
from billing.books.exchange import Quote, exchange
from billing.charging import promotions
from billing.errors import AccountFrozen, AmountInvalid, InsufficientFunds
from billing.models import Account
from billing.models.ledger import USD_ASSET_ID
from tests.integration.billing.whole.machine import BillingMachine, amounts, customers
from tests.integration.billing.whole.model import Gift
from tests.integration.billing.whole.world import CUSTOMERS, PROVIDERS

DAY = timedelta(days=1)


class Giving(BillingMachine):
    """What customers have besides what they pay in."""

    @rule(who=customers, amount=amounts, days=st.integers(1, 20), is_repeated=st.booleans())
    def give(self, who: str, amount: int, days: int, is_repeated: bool) -> None:
        until = self.now() + days * DAY
        reference = str(uuid4())
        for _ in range(1 + is_repeated):
            promotions.grant(self.owners[who], amount, expires_at=until, reference=reference, actor="operator")
        self.model.gifts.append(Gift(self.owners[who], amount, until))
        self.model.promo_expense -= amount
        self.did("give")

    @rule()
    def gifts_expire(self) -> None:
        now = self.now()
        promotions.expire_due(now)
        for gift in self.model.gifts:
            if gift.left and gift.expires_at <= now:
                self.model.promo_expense += gift.left
                gift.left = 0
                self.did("gifts_expire")

    @rule(who=customers, sold=amounts, numerator=st.integers(1, 9), denominator=st.integers(1, 9), step=st.booleans())
    def exchange(self, who: str, sold: int, numerator: int, denominator: int, step: bool) -> None:
        owner = self.owners[who]
        least = 10_000 if step else 1
        quote = Quote(str(uuid4()), self.token, USD_ASSET_ID, numerator, denominator, least)
        errors = (InsufficientFunds, AmountInvalid, AccountFrozen)
        if not self.tries("exchange", lambda: exchange(owner_id=owner, sold=sold, quote=quote), *errors):
            return
        before = self.fingerprint()
        exchange(owner_id=owner, sold=sold, quote=quote)  # a repeat returns the first, whatever is left
        assert self.fingerprint() == before, "P13"
        value = sold * numerator // denominator
        self.model.spend[owner, self.token] -= sold
        self.model.spend[owner, USD_ASSET_ID] += value - value % least
        self.model.liquidity[self.token] += sold
        self.model.liquidity[USD_ASSET_ID] -= value
        self.model.rounding[USD_ASSET_ID] += value % least

    # --- the operator

    @rule(who=st.sampled_from([*CUSTOMERS, *PROVIDERS]), is_frozen=st.integers(0, 3))
    def freeze_or_thaw(self, who: str, is_frozen: int) -> None:
        kinds = [AccountKind.CUSTOMER_AVAILABLE, AccountKind.PROVIDER_AVAILABLE]
        mine = Account.objects.filter(owner_id=self.owners[who], kind__in=kinds)
        if mine.update(is_frozen=not is_frozen):
            self.books.read()
            self.did("freeze_or_thaw")
