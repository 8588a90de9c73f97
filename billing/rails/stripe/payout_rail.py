"""Payouts through Stripe: a transfer to the provider's account at Stripe, then a payout from there to its bank.

With the transfer the money has left us and is the provider's: that is `confirmed`. What becomes of it on the way to the
bank is reported beside (BankReport): sent, paid, or refused by Stripe, and then tried again. Where the bank sends the
payout back, the transfer is reversed and the payout is `returned`. Every step is looked up first by the payout's id
(transfer_group, metadata), so that each may be repeated.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import ClassVar, Final

from billing.account_kinds import AccountKind
from billing.models import BankLeg, ConnectAccount, Payout, StripeEvent
from billing.models.ledger import USD_ASSET_ID
from billing.money import MICROS_PER_CENT
from billing.rails.errors import RailError
from billing.rails.payments_in import cost_reference
from billing.rails.payouts import EVENT_STORED, BankReport, Fate, Movement, Outcome, PayoutRail
from billing.rails.stripe import booking
from billing.rails.stripe.client import Key, StripeClient, connect
from billing.rails.stripe.records import CURRENCY, BankPayout, Moved, StripeRefused
from billing.states import BANK_STATES_RETRIED, BankState
from marketplace.foundation import clock

MIRROR: Final = AccountKind.STRIPE_BALANCE
BALANCE_SHORT: Final = "balance_insufficient"
FAILED: Final = frozenset({"failed", "canceled"})
PAID: Final = "paid"
_ACCOUNT: Final = re.compile(r"acct_[A-Za-z0-9]{8,64}")

log = logging.getLogger(__name__)


class StripePayouts(PayoutRail):
    """Pays providers in dollars to the account that they have at Stripe."""

    name: ClassVar[str] = "stripe"

    def __init__(self, stripe: StripeClient | None = None) -> None:
        self._stripe = stripe or connect()

    def check_destination(self, destination: str) -> str:
        destination = destination.strip()
        if not _ACCOUNT.fullmatch(destination):
            raise ValueError("The destination is the id of your payout account at Stripe, such as acct_1Abc...")
        if not ConnectAccount.objects.filter(stripe_id=destination).exists():
            raise ValueError("This marketplace knows no such payout account. Create one under /api/v1/payout-account.")
        return destination

    def submit(self, payouts: Sequence[Payout]) -> dict[str, Outcome]:
        return self._each(payouts, self._submit)

    def find(self, payouts: Sequence[Payout]) -> dict[str, Outcome]:
        return self._each(payouts, self._find)

    def positions(self) -> dict[tuple[AccountKind, int], int]:
        return {(MIRROR, USD_ASSET_ID): booking.micros(self._stripe.balance_cents())}

    def movements(self, since: datetime) -> Iterator[Movement]:
        for entry in self._stripe.list_bookings(since):
            if entry.currency != CURRENCY:
                continue  # no part of the dollars of `positions`; sweeping.py alerts of it
            ref = booking.ref_of(entry)
            parts = ((ref, entry.amount_cents), (cost_reference(ref), -entry.fee_cents))
            for name, cents in parts:
                if cents:
                    yield Movement(name, MIRROR, USD_ASSET_ID, booking.micros(cents), entry.at)

    def explain(self, ref: str) -> str:
        is_stored = StripeEvent.objects.filter(processed_at=None, payload__icontains=ref).exists()
        return EVENT_STORED if is_stored else ""

    def _each(self, payouts: Sequence[Payout], ask: Callable[[Payout], Outcome]) -> dict[str, Outcome]:
        """What is known of each; one that could not be asked about is left out, and asked about again."""
        outcomes: dict[str, Outcome] = {}
        error: RailError | None = None
        for payout in payouts:
            try:
                outcomes[str(payout.pk)] = ask(payout)
            except RailError as trouble:
                log.warning("A payout's fate at Stripe is not known yet. payout_id=%s error=%s", payout.pk, trouble)
                error = trouble
        if error is not None and not outcomes:
            raise error
        return outcomes

    def _submit(self, payout: Payout) -> Outcome:
        account = ConnectAccount.objects.filter(stripe_id=payout.destination, owner_id=payout.provider_id).first()
        if account is None:
            return Outcome(Fate.FAILED, message="The payout account at Stripe is not this provider's.")
        cents = int(payout.amount) // MICROS_PER_CENT
        if int(payout.amount) % MICROS_PER_CENT or not cents:
            return Outcome(Fate.FAILED, message="Stripe moves whole cents only.")
        if not account.is_payable and self._stripe.find_transfer(str(payout.pk)) is None:
            wanted = ", ".join(account.requirements) or account.disabled_reason or "it is being checked"
            return Outcome(Fate.FAILED, message=f"Stripe does not pay this account yet: {wanted}.")
        try:
            moved = self._stripe.transfer(
                account_id=payout.destination,
                amount_cents=cents,
                group=str(payout.pk),
                metadata=_marks(payout),
                key=Key(f"payout-{payout.pk}", is_repeat=True),
            )
        except StripeRefused as error:
            if error.code == BALANCE_SHORT:
                log.error("The platform's balance at Stripe is short: payouts wait. payout_id=%s", payout.pk)
                raise RailError("The platform's balance at Stripe is short.") from error
            return Outcome(Fate.FAILED, message=error.message)
        return self._send_on(payout, moved)

    def _find(self, payout: Payout) -> Outcome:
        moved = self._stripe.find_transfer(str(payout.pk))
        if moved is None:
            return Outcome(Fate.ABSENT)
        return self._send_on(payout, moved)

    def _send_on(self, payout: Payout, moved: Moved) -> Outcome:
        """The second half: from the provider's account to its bank. What the bank sends back comes back to us.

        What Stripe refuses here is reported, kept with the payout (payouts/bank_legs.py), and tried again when due.
        """
        leg = BankLeg.objects.filter(payout=payout).first()
        try:
            sent = self._find_sent(payout, moved, leg)
        except StripeRefused as error:
            # The account is closed, or was taken from us. The transfer has left all the same: were it not booked, it
            # would stop everybody's payouts, and no chargeback would reach it.
            return _arrived(moved, _unreadable(leg, error))
        if sent is None:
            return _arrived(moved, self._pay_bank(payout, moved, leg))
        if sent.status not in FAILED:
            return _arrived(moved, BankReport(BankState.PAID if sent.status == PAID else BankState.SENT, sent.id))
        cause = sent.failure or "The bank sent it back."
        number = _number(leg, BankState.SENT_BACK)
        if number is None:
            return _arrived(moved, None)
        try:
            back = self._stripe.reverse_transfer(
                moved.id,
                amount_cents=moved.amount_cents,
                metadata={**_marks(payout, number), "outbox_id": return_mark(payout)},
                key=Key(_key(return_mark(payout), number), is_repeat=True),
            )
        except StripeRefused as error:
            log.error("A payout that the bank sent back cannot be reversed. payout_id=%s error=%s", payout.pk, error)
            message = f"{cause} Stripe does not reverse the transfer: {error.message}"
            return _arrived(moved, BankReport(BankState.SENT_BACK, sent.id, message, number))
        report = BankReport(BankState.RETURNED, sent.id, cause)
        return Outcome(Fate.RETURNED, external_id=back.id, message=cause, bank=report)

    def _pay_bank(self, payout: Payout, moved: Moved, leg: BankLeg | None) -> BankReport | None:
        """Ask Stripe to send it on, under a key of this try; None where the next try is not due."""
        if moved.reversed_cents:
            # For a chargeback, or by hand; what is left, if anything, is the provider's own to move.
            left = moved.amount_cents - moved.reversed_cents
            message = f"{left / 100:.2f} USD of {moved.amount_cents / 100:.2f} are left of the transfer."
            return BankReport(BankState.LEFT, message=message)
        number = _number(leg, BankState.REFUSED)
        if number is None:
            return None
        try:
            sent = self._stripe.pay_bank(
                moved.destination,
                amount_cents=moved.amount_cents,
                metadata=_marks(payout, number),
                key=Key(_key(f"bank-{payout.pk}", number)),
            )
        except StripeRefused as error:
            log.warning("Stripe does not send a payout on to the bank. payout_id=%s error=%s", payout.pk, error)
            return BankReport(BankState.REFUSED, message=error.message, number=number)
        return BankReport(BankState.PAID if sent.status == PAID else BankState.SENT, sent.id)

    def _find_sent(self, payout: Payout, moved: Moved, leg: BankLeg | None) -> BankPayout | None:
        """The payout to the bank, by the id that we kept, else by what we wrote on it."""
        if leg is not None and leg.bank_payout_id:
            return self._stripe.fetch_bank_payout(moved.destination, leg.bank_payout_id)
        return self._stripe.find_bank_payout(moved.destination, str(payout.pk))


def return_mark(payout: Payout) -> str:
    """What we write on the reversal of a payout that the bank sent back: by it the reversal is known to be ours."""
    return f"return-{payout.pk}"


def _arrived(moved: Moved, report: BankReport | None) -> Outcome:
    return Outcome(Fate.CONFIRMED, external_id=moved.id, bank=report)


def _unreadable(leg: BankLeg | None, error: StripeRefused) -> BankReport | None:
    """Stripe does not show us the account's payouts to its bank: as if it were refused, until it does again."""
    log.error("Stripe does not show what became of a payout on its way to the bank. error=%s", error)
    state = BankState(leg.state) if leg is not None and leg.state in BANK_STATES_RETRIED else BankState.REFUSED
    number = _number(leg, state)
    if number is None:
        return None
    return BankReport(state, message=f"Stripe does not say whether it is at the bank: {error.message}", number=number)


def _number(leg: BankLeg | None, state: BankState) -> int | None:
    """Of the next try of what is refused in this state; None while it is not due."""
    if leg is None or leg.state != state:
        return 1
    if leg.next_at is None or leg.next_at > clock.now():
        return None
    return leg.tries + 1


def _key(text: str, number: int) -> str:
    """Stripe repeats a refusal from memory under the key that it was given for: each try has a key of its own."""
    return text if number == 1 else f"{text}-try-{number}"


def _marks(payout: Payout, number: int = 1) -> dict[str, str]:
    marks = {"outbox_id": str(payout.pk), "payout_id": str(payout.pk)}
    return marks if number == 1 else {**marks, "attempt": str(number)}
