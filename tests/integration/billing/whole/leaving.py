"""Rules of payouts on both rails, and of what watches over all of it: reconciliation, seals, time, death, erasure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, Final

from eth_account import Account as EthereumAccount
from eth_account.messages import encode_defunct
from hypothesis import strategies as st
from hypothesis.stateful import rule

from billing import breaker
from billing.account_kinds import AccountKind
from billing.books import deposits, hash_chain, ledger
from billing.chain import payout_roots
from billing.chain.errors import ProofNotReady
from billing.charging import holds, promotions
from billing.errors import BillingError
from billing.fiat import accounts, events, sweeping, topups
from billing.models import Asset, ConnectAccount, Difference, Payout, PayoutSettings
from billing.models.ledger import USD_ASSET_ID
from billing.payouts import paying, preferences, running, submission
from billing.payouts.errors import NothingToPay, PayoutSettingsMissing, PayoutUnderWay
from billing.payouts.preferences import DesiredSettings
from billing.reconciliation.reconciling import reconcile
from marketplace.accounts import erasure
from marketplace.foundation import clock
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.whole.buying import Buying
from tests.integration.billing.whole.escrowing import Escrowing
from tests.integration.billing.whole.giving import Giving
from tests.integration.billing.whole.machine import customers, providers, taken, which
from tests.integration.billing.whole.paying import Paying, receive
from tests.integration.billing.whole.world import CUSTOMERS, PROVIDERS

BANK_SECONDS_MAX: Final = 5 * 86_400  # in which a bank sends a payout back


def at_banks(stripe: FakeStripe, statuses: Collection[str]) -> list[dict[str, Any]]:
    """Of the payouts from providers' accounts to their banks those that are ours, in one of these states at Stripe."""
    return [
        one
        for account in stripe.store.accounts()
        for one in stripe.store.all("payout", account)
        if one["status"] in statuses and one["metadata"].get("payout_id")
    ]


class Whole(Buying, Giving, Paying, Escrowing):
    """All of billing at once."""

    def begin(self) -> None:
        """Customers have paid by card once, providers have chosen where they want to be paid."""
        for name in CUSTOMERS:
            self.ask(name, 10_000)
        for name in PROVIDERS:
            accounts.request_account(self.owners[name], country="US", email="bob@example.org")
        self.make_calls()
        for page in self.world.stripe.store.all("checkout.session"):
            self.world.stripe.pay_session(page["id"])
        self.world.stripe.deliver(receive)
        self.work_off()
        for name in PROVIDERS:
            self.join(name)
            self.choose(name)

    def listen(self) -> None:
        with self.line_is_good():
            events.poll()
            self.work_off()
            sweeping.sweep()
            self.make_calls()  # a lost call is repeated within minutes, long before a comparison
            if submission.follow_payouts():
                self.did("follow_payouts")
        self.follow()

    # --- payouts

    @rule(who=providers)
    def join_stripe(self, who: str) -> None:
        self.join(who)
        self.did("join_stripe")

    def join(self, who: str) -> None:
        owner = self.owners[who]
        with self.line_is_good():
            self.make_calls()
            row = ConnectAccount.objects.get(owner_id=owner)
            if row.stripe_id is None:
                return
            if not row.is_payable:
                self.world.stripe.onboard(row.stripe_id)
                accounts.refresh(row.stripe_id)
            usd = Asset.objects.get(pk=USD_ASSET_ID)
            preferences.choose(owner, usd, DesiredSettings("stripe", row.stripe_id), actor=who)

    @rule(who=providers)
    def choose_wallet(self, who: str) -> None:
        self.choose(who)
        self.did("choose_wallet")

    def choose(self, who: str) -> None:
        owner, wallet = self.owners[who], self.world.town.key(who).address
        token = Asset.objects.get(pk=self.token)
        version = (
            PayoutSettings.objects.filter(provider_id=owner, asset=token).values_list("version", flat=True).first()
        )
        text = preferences.wallet_text(owner, token, wallet, version or 0)
        forged = self.sign("Mallory", text)
        desired = DesiredSettings("chain", wallet, signature=forged)
        if not version:
            self.tries(
                "forged wallet", lambda: preferences.choose(owner, token, desired, actor="mallory"), BillingError
            )
            assert not taken["forged wallet"]
        preferences.choose(owner, token, DesiredSettings("chain", wallet, signature=self.sign(who, text)), actor=who)

    def sign(self, who: str, text: str) -> str:
        signed = EthereumAccount.from_key(self.world.town.secret(who)).sign_message(encode_defunct(text=text))
        return "0x" + bytes(signed.signature).hex()

    @rule(is_late=st.booleans())
    def run_payouts(self, is_late: bool) -> None:
        if is_late:
            self.let_pass(86_400)
        if self.pay_all():
            self.did("run_payouts")

    def check_breaker(self) -> None:
        found = breaker.current()
        assert found is None, [str(vars(one)) for one in Difference.objects.filter(explanation="")]

    def pay_all(self) -> int:
        self.listen()  # a payout run compares the books with what was reported; it does not poll itself
        PayoutSettings.objects.filter(due_at__gt=clock.now()).update(due_at=clock.now())
        before = {
            (owner, asset): ledger.balance(owner, AccountKind.PROVIDER_AVAILABLE, asset_id=asset)
            for owner in (self.owners[name] for name in PROVIDERS)
            for asset in self.assets
        }
        made = running.run_payouts()
        self.check_breaker()
        for payout in Payout.objects.order_by("-created_at")[:made]:
            assert 0 < payout.amount <= before[payout.provider_id, payout.asset_id] + self.reserve_released, "P21"
        return made

    @property
    def reserve_released(self) -> int:
        return 10**18  # a run may release reserves first; the database's own rule is what P21 rests on

    @rule(is_followed=st.booleans())
    def pay_day(self, is_followed: bool) -> None:
        """What was earned leaves its window, and is paid on the same day."""
        self.windows_pass()
        if self.pay_all():
            self.make_calls()
            self.did("pay_day")
        if is_followed:
            self.follow()
            self.follow_payouts()
            self.follow()

    @rule(who=providers, is_token=st.booleans())
    def pay_now(self, who: str, is_token: bool) -> None:
        asset = Asset.objects.get(pk=self.assets[is_token])
        has = ledger.balance(self.owners[who], AccountKind.PROVIDER_AVAILABLE, asset_id=asset.pk)
        errors = (NothingToPay, PayoutUnderWay, PayoutSettingsMissing, BillingError)
        payout = self.tries("pay_now", lambda: paying.pay_now(self.owners[who], asset, actor=who), *errors)
        assert payout is None or 0 < payout.amount <= has, "P21: more than there was"

    @rule()
    def follow_payouts(self) -> None:
        self.world.advance(180)
        if submission.follow_payouts():
            self.did("follow_payouts")

    @rule(number=which)
    def bank_sends_back(self, number: int) -> None:
        """From the provider's bank to its account at Stripe; from there it is ours again when we look.

        A bank does so within days. We look for longer, and after that only a webhook would tell us.
        """
        stripe = self.world.stripe
        since = stripe.clock.now() - BANK_SECONDS_MAX
        rows = [one for one in at_banks(stripe, {"pending", "in_transit", "paid"}) if one["created"] >= since]
        payout = self.pick(rows, number)
        if payout is not None:
            self.world.stripe.fail_payout(payout["id"])
            self.did("bank_sends_back")

    @rule(who=providers)
    def stripe_asks_more(self, who: str) -> None:
        row = ConnectAccount.objects.filter(owner_id=self.owners[who]).exclude(stripe_id=None).first()
        if row is not None:
            self.world.stripe.restrict(row.stripe_id or "")
            with self.line_is_good():
                accounts.refresh(row.stripe_id or "")
            self.did("stripe_asks_more")

    @rule(number=which)
    def retry_payout(self, number: int) -> None:
        failed = self.pick(list(Payout.objects.filter(state__in=["failed", "returned"]).order_by("created_at")), number)
        if failed is not None:
            verb = lambda: paying.retry(failed.provider_id, failed.pk, actor="bob")  # noqa: E731
            self.tries("retry_payout", verb, BillingError)

    @rule(number=which)
    def claim(self, number: int) -> None:
        confirmed = list(Payout.objects.filter(rail="chain", state="confirmed").order_by("created_at"))
        payout = self.pick(confirmed, number)
        if payout is None:
            return
        try:
            proof = payout_roots.prove(payout.pk)
        except ProofNotReady:
            return
        self.calls("claim", "Mallory", "claim", proof.wallet, proof.cumulative, proof.proof)

    @rule()
    def ticks(self) -> None:
        """Everything that runs by the minute runs once."""
        self.listen()
        self.make_calls()
        self.release_due()
        self.did("ticks")

    # --- what watches

    @rule()
    def reconcile(self) -> None:
        """In the middle of everything: what is under way is explained, and nothing else is there."""
        self.listen()
        with self.line_is_good():
            report = reconcile(reason="hourly")
        assert report.unanswered == {}
        self.check_breaker()
        self.did("reconcile")

    @rule()
    def seal(self) -> None:
        if hash_chain.chain_transfers():
            self.did("seal")

    @rule(seconds=st.sampled_from([1, 60, 900, 3_600, 86_400]))
    def wait(self, seconds: int) -> None:
        self.let_pass(seconds)
        self.did("wait")

    @rule(who=customers)
    def erase(self, who: str) -> None:
        """P26: a person goes, and no unit moves."""
        before = self.fingerprint()
        erasure.erase(self.users[who])
        assert self.fingerprint() == before, "P26"
        self.did("erase")

    # --- what is refused changes nothing

    @rule(who=customers, amount=st.sampled_from([0, -1, -(10**12), 2**256, 2**300, True]))
    def ask_for_nonsense(self, who: str, amount: Any) -> None:
        owner, before = self.owners[who], self.fingerprint()
        until = self.now() + timedelta(days=1)
        gift = 0 if amount is True else amount
        verbs: list[Callable[[], object]] = [
            lambda: holds.place_hold(owner_id=owner, job_id=owner, amount=amount),
            lambda: deposits.credit(owner, amount, reference="nonsense", actor="x"),
            lambda: topups.request_top_up(owner, amount, method="checkout", actor="x"),
            lambda: promotions.grant(owner, gift, expires_at=until, reference="nonsense", actor="x"),
        ]
        for verb in verbs:
            self.tries("nonsense", verb, BillingError)
        assert not taken["nonsense"], "nonsense was done"
        assert self.fingerprint() == before
        self.did("ask_for_nonsense")

    @rule()
    def mallory_calls_the_webhook(self) -> None:
        before = self.fingerprint()
        assert receive(b'{"id": "evt_1", "type": "payment_intent.succeeded"}', "t=1,v1=00") == 400
        assert self.fingerprint() == before
        self.did("mallory_calls_the_webhook")
