"""The balance of a Stripe account is the sum of its balance transactions: pending until `available_on`, then free."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.fakes.stripe.errors import invalid
from tests.fakes.stripe.routes import Call, route
from tests.fakes.stripe.shapes import Object, balance_transaction, listing
from tests.fakes.stripe.store import Store

if TYPE_CHECKING:
    from tests.fakes.stripe.fake import FakeStripe

AVAILABLE_AFTER_SECONDS: Final = 2 * 24 * 3600
FEE_BASIS_POINTS: Final = 290
FEE_FIXED_CENTS: Final = 30

_CATEGORIES: Final = {
    "adjustment": "dispute",
    "payment": "charge",
    "payment_refund": "refund",
    "transfer_refund": "transfer_reversal",
    "payout_cancel": "payout_reversal",
    "payout_failure": "payout_reversal",
    "stripe_fee": "fee",
}


class Books:
    """Books a movement, and returns what an account has."""

    def __init__(self, store: Store, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now

    def card_fee(self, cents: int) -> int:
        """2.9 % and 30 cents, rounded half up."""
        return (cents * FEE_BASIS_POINTS + 5_000) // 10_000 + FEE_FIXED_CENTS

    def book(
        self,
        account: str,
        kind: str,
        cents: int,
        currency: str,
        *,
        source: str,
        fee: int = 0,
        available_on: int | None = None,
        description: str | None = None,
    ) -> Object:
        """Write one movement down; its net changes the balance."""
        now = self._now()
        due = now if available_on is None else available_on
        details = {"amount": fee, "application": None, "currency": currency, "description": "Stripe processing fees"}
        fields = balance_transaction() | {
            "amount": cents,
            "available_on": due,
            "currency": currency,
            "description": description,
            "fee": fee,
            "fee_details": [{**details, "type": "stripe_fee"}] if fee else [],
            "net": cents - fee,
            "reporting_category": _CATEGORIES.get(kind, kind),
            "source": source,
            "status": "available" if due <= now else "pending",
            "type": kind,
        }
        return self._store.add(account, fields, prefix="txn", has_livemode=False)

    def settle(self) -> None:
        """What is due becomes available."""
        now = self._now()
        for account in self._store.accounts():
            for row in self._store.all("balance_transaction", account):
                if row["available_on"] <= now:
                    row["status"] = "available"

    def sums(self, account: str) -> dict[str, tuple[int, int]]:
        """By currency, what is (available, pending)."""
        sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for row in self._store.all("balance_transaction", account):
            if row["balance_type"] == "payments":  # the others are no part of available and pending
                sums[row["currency"]][row["status"] == "pending"] += row["net"]
        return {currency: (available, pending) for currency, (available, pending) in sums.items()}

    def available(self, account: str, currency: str) -> int:
        return self.sums(account).get(currency, (0, 0))[0]

    def require(self, account: str, currency: str, cents: int) -> None:
        """Refuse what the available balance does not cover, in Stripe's words."""
        if self.available(account, currency) < cents:
            message = (
                "You have insufficient available funds in your Stripe account. Try adding funds directly to your "
                "available balance by creating Charges using the 4000000000000077 test card."
            )
            raise invalid(message, code="balance_insufficient")


@route("GET", "/v1/balance", "BalanceRetrieveParams")
def retrieve_balance(stripe: FakeStripe, call: Call) -> Object:
    sums = stripe.books.sums(call.account) or {"usd": (0, 0)}

    def column(index: int) -> list[Object]:
        return [
            {"amount": pair[index], "currency": currency, "source_types": {"card": pair[index]}}
            for currency, pair in sorted(sums.items())
        ]

    reserved = [{"amount": 0, "currency": currency} for currency in sorted(sums)]
    shown: Object = {"object": "balance", "available": column(0), "livemode": False, "pending": column(1)}
    return shown | ({} if call.is_connected else {"connect_reserved": reserved})


@route("GET", "/v1/balance_transactions", "BalanceTransactionListParams")
def list_balance_transactions(stripe: FakeStripe, call: Call) -> Object:
    if "payout" in call.params:  # only automatic payouts know which transactions they pay out
        return listing(call.path)
    return stripe.store.page(
        call.account, "balance_transaction", call.params, call.path, by=("currency", "source", "type")
    )


@route("GET", "/v1/balance_transactions/{id}", "BalanceTransactionRetrieveParams")
def retrieve_balance_transaction(stripe: FakeStripe, call: Call, id: str) -> Object:
    return stripe.store.get(call.account, "balance_transaction", id)
