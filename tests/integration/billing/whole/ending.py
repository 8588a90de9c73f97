"""The end of a sequence: everything that waits happens, and then nothing may differ anywhere."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from billing.books import ledger
from billing.chain.wallets import wallet_owner
from billing.fiat import claims, events, sweeping, topups
from billing.models import (
    Account,
    CardDispute,
    ChainTransaction,
    ChargebackRecovery,
    Payout,
    StripeEvent,
    TopUp,
    Transfer,
    TransferReversal,
)
from billing.models.ledger import USD_ASSET_ID
from billing.money import MICROS_PER_CENT
from billing.payouts import submission
from billing.payouts.paying import SUBMIT
from billing.reconciliation.reconciling import reconcile
from billing.solvency.totals import solvency
from billing.states import PAYOUT_STATES_OPEN
from billing.states.fiat import TOP_UP_UNDER_WAY
from marketplace.foundation.models import OutboxMessage
from tests.integration.billing.whole.buying import WINDOW_SECONDS
from tests.integration.billing.whole.leaving import Whole, at_banks
from tests.integration.billing.whole.paying import receive
from tests.integration.billing.whole.world import CUSTOMERS, PROVIDERS, facts

ROUNDS_MAX: Final = 25
QUIET_ROUNDS: Final = 2
ROUND_SECONDS: Final = 1_300
PAYING: Final = ("customer_available", "provider_reserve", "provider_available")


def drain(machine: Whole) -> None:
    """Deliver all, follow, call, poll, sweep, until nothing changes any more. The line is good from here on."""
    world = machine.world
    world.stripe.faults.clear()
    world.stripe.fund(10_000_000)  # nobody waits because the operator is short
    # Stripe's list of events has none of providers' accounts: what a bank sent back, and no webhook reported, is found
    # by the next look at payouts that arrived.
    world.advance(submission.RETURNS_EVERY.total_seconds())
    before, quiet = None, 0
    for _ in range(ROUNDS_MAX):
        world.advance(ROUND_SECONDS)
        world.stripe.deliver(receive)
        events.poll()
        machine.work_off()
        machine.make_calls()
        sweeping.sweep()
        machine.work_off()
        topups.release_waiting()
        machine.follow()
        submission.follow_payouts()
        now = machine.fingerprint(), _waiting()
        quiet = quiet + 1 if now == before else 0
        before = now
        if quiet == QUIET_ROUNDS:
            return
    raise AssertionError(f"it never comes to rest: {_waiting()}")


def _waiting() -> dict[str, Any]:
    return {
        "calls": list(OutboxMessage.objects.filter(state="waiting").values_list("kind", "last_error")),
        "events": list(StripeEvent.objects.filter(processed_at=None).values_list("type", "error")),
        "payouts": Payout.objects.filter(state__in=PAYOUT_STATES_OPEN).count(),
        "transactions": ChainTransaction.objects.exclude(
            state__in=["final", "reverted", "replaced", "refused"]
        ).count(),
    }


def check(machine: Whole) -> None:
    """P18, P19, P20, reconciliation, solvency, and the naive books with what the outside says."""
    machine.check_all()
    machine.books.check_stripe(is_settled=True)
    machine.books.check_chain(is_settled=True)
    machine.world.stripe.check()
    _check_nothing_waits(machine)
    _check_replayed(machine)
    _check_effects(machine)
    _check_reconciled(machine)
    _check_owners(machine)
    _check_wallets(machine)
    _check_chargebacks(machine)
    assert ledger.verify().problems == []


def _check_nothing_waits(machine: Whole) -> None:
    stuck = StripeEvent.objects.exclude(outcome__in=["handled", "ignored"]).values_list("type", "error")
    assert list(stuck) == [], "an event of Stripe's was not handled"
    assert machine.unbooked() == 0, "an event of the chain was not booked"
    # A call for payouts that failed for good has a successor; what counts is that none of its payouts waits.
    failed = OutboxMessage.objects.filter(state="failed", kind=SUBMIT)
    assert not OutboxMessage.objects.exclude(state="done").exclude(pk__in=failed).exists(), _waiting()
    batches = [message.payload["batch_id"] for message in failed]
    assert not Payout.objects.filter(batch_id__in=batches, state__in=PAYOUT_STATES_OPEN).exists(), _waiting()


def _check_replayed(machine: Whole) -> None:
    """P18: all of it once more, backwards, changes nothing."""
    before, transfers = machine.fingerprint(), machine.books.seq
    StripeEvent.objects.update(processed_at=None, outcome="waiting", attempts=0)
    machine.work_off()
    machine.world.town.follow()
    submission.follow_payouts()
    moved = _difference(before, machine.fingerprint())
    assert moved == {}, f"P18: the same events again moved money: {moved}, by {_transfers_since(transfers)}"


def _difference(before: dict[Any, Any], after: dict[Any, Any]) -> dict[Any, tuple[Any, Any]]:
    """What is not the same in two fingerprints: name of the account to (sums before, sums after)."""
    names = before.keys() | after.keys()
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def _transfers_since(seq: int) -> list[dict[str, Any]]:
    """What was booked after this transfer; the rows say what made it."""
    return [{**one} for one in Transfer.objects.filter(seq__gt=seq).order_by("seq").values()]


def _check_effects(machine: Whole) -> None:
    """P19: each call that was made has exactly the effect that its row says it has."""
    stripe = machine.world.stripe
    for top_up in TopUp.objects.all():
        message = OutboxMessage.objects.get(business_key=f"top_up:{top_up.pk}")
        made = stripe.effects(message.pk, kind="checkout.session" if top_up.method == "checkout" else "payment_intent")
        assert made <= 1, "P19: a top-up was made twice"
        paid = [one for one in stripe.store.all("charge") if one["paid"] and _of(one, "top_up_id") == str(top_up.pk)]
        assert len(paid) == (top_up.state == "succeeded"), f"P19: {top_up.state} and {len(paid)} payments"
        assert top_up.state not in TOP_UP_UNDER_WAY or not paid
    for payout in Payout.objects.filter(rail="stripe"):
        moved = [one for one in stripe.store.all("transfer") if one["transfer_group"] == str(payout.pk)]
        assert len(moved) == (payout.state in {"confirmed", "returned"}), f"P19: {payout.state}, {len(moved)} transfers"
        assert all(one["amount"] * MICROS_PER_CENT == payout.amount for one in moved)
    for bank_payout in at_banks(stripe, {"failed"}):
        payout = Payout.objects.get(pk=bank_payout["metadata"]["payout_id"])
        is_seen = payout.state == "returned" or payout.bank_leg.state == "sent_back"
        assert is_seen, f"P19: a bank sent {bank_payout['id']} back, and its payout is {payout.state}"


def _of(row: dict[str, Any], key: str) -> str:
    return str((row["metadata"] or {}).get(key, ""))


def _check_reconciled(machine: Whole) -> None:
    report = reconcile(reason="the end")
    assert report.unanswered == {}
    assert [str(vars(one)) for one in report.differences.all()] == []
    machine.check_breaker()
    for one in solvency()["assets"]:
        assert one["is_balanced"], f"solvency of {one['asset']} does not add up"


def _check_owners(machine: Whole) -> None:
    """What each has is what came in outside, less what went out, and what the rules did meanwhile."""
    model, says = machine.model, machine.books.balance
    total = 0
    for name in CUSTOMERS:
        owner = machine.owners[name]
        # What waits because its payer is new is set aside under the payment's own name.
        has = says("customer_available", owner) + says("job_hold", owner) - model.held(owner, USD_ASSET_ID)
        should, claimed = _dollars_of(machine, owner)
        total += has - should
        if not claimed:
            assert has == should, f"{name} has {has}, and should have {should}"
    for name in PROVIDERS:
        owner = machine.owners[name]
        has = sum(says(kind, owner) for kind in ("provider_available", "provider_reserve", "payout_clearing"))
        total += has - (model.earned[owner, USD_ASSET_ID] - _paid_out(machine, owner))
    loss = says("chargeback_loss")
    assert total + loss == 0, f"what is missing at owners is {-total}, and the loss {-loss}"
    for name in CUSTOMERS:
        owner = machine.owners[name]
        if claims.settle(owner):
            raise AssertionError(f"{name} could pay a claim, and did not")


def _dollars_of(machine: Whole, owner: UUID) -> tuple[int, int]:
    """(what the customer should have if nobody had claimed anything of it, what was claimed)."""
    stripe = machine.world.stripe
    charges = {one["id"]: one for one in stripe.store.all("charge") if one["paid"]}
    mine = {each for each, one in charges.items() if _of(one, "organisation_id") == str(owner)}
    cents = sum(charges[each]["amount"] for each in mine)
    claimed = 0
    asked = set(OutboxMessage.objects.filter(kind="stripe.refund").values_list("pk", flat=True))
    for one in stripe.store.all("refund"):
        if one["charge"] in mine and one["status"] == "succeeded":
            cents -= one["amount"]
    claimed += sum(
        _of(one, "outbox_id") not in {str(each) for each in asked}
        for one in stripe.store.all("refund")
        if one["charge"] in mine
    )
    for one in stripe.store.all("dispute"):
        if one["charge"] in mine:
            claimed += 1
            cents += sum(row["amount"] - row["fee"] for row in one["balance_transactions"])
    should = cents * MICROS_PER_CENT + machine.model.spend[owner, USD_ASSET_ID]
    return should, claimed


def _paid_out(machine: Whole, owner: UUID) -> int:
    """What Stripe moved to a provider and not back."""
    payouts = {str(each) for each in Payout.objects.filter(provider_id=owner).values_list("pk", flat=True)}
    moved = [one for one in machine.world.stripe.store.all("transfer") if one["transfer_group"] in payouts]
    return int(sum(one["amount"] - one["amount_reversed"] for one in moved)) * MICROS_PER_CENT


def _check_wallets(machine: Whole) -> None:
    """Tokens: credits as bought and spent, payouts as promised and claimed, wallets as the contract has them."""
    town, says, model = machine.world.town, machine.books.balance, machine.model
    bought: dict[str, int] = {}
    for name, arguments, _ in facts(machine.world.chain, town).values():
        if name == "CreditsBought":
            bought[arguments["account"]] = bought.get(arguments["account"], 0) + int(arguments["amount"])
    for who in CUSTOMERS:
        owner = machine.owners[who]
        came = sum(amount for account, amount in bought.items() if account.endswith(owner.hex))
        has = says("customer_available", owner, town.asset_id)
        assert has == came + model.spend[owner, town.asset_id], f"tokens of {who}"
    for who in PROVIDERS:
        owner = machine.owners[who]
        has = sum(
            says(kind, owner, town.asset_id) for kind in ("provider_available", "provider_reserve", "payout_clearing")
        )
        claimed = machine.world.view("claimed", town.key(who).address)[0]
        assert has == model.earned[owner, town.asset_id] - claimed, f"tokens of {who}"
    for who in (*CUSTOMERS, *PROVIDERS, "Mallory"):
        wallet = town.key(who).address
        for kind, function in (("wallet_available", "available"), ("wallet_stake", "staked")):
            has = machine.world.view(function, wallet)[0]
            assert says(kind, wallet_owner(wallet), town.asset_id) == has, f"{kind} of {who}"


def _check_chargebacks(machine: Whole) -> None:
    """What is still a loss is so because nobody who has to pay for it has anything left."""
    for dispute in CardDispute.objects.filter(state__in=["open", "lost"]).select_related("top_up"):
        taken = sum(one.amount for one in dispute.recoveries.filter(given_back=None))
        asked = sum(one.amount for one in dispute.reversals.filter(state="requested"))
        lacks, customer, since = dispute.loss - taken - asked, dispute.top_up.owner_id, dispute.top_up.credited_at
        if lacks <= 0 or since is None:
            continue
        assert sum(machine.books.balance(kind, customer) for kind in PAYING) == 0, "the customer could pay, and did not"
        for name in PROVIDERS:
            room = _kept_of(machine, customer, machine.owners[name], since) - _taken_from(
                customer, machine.owners[name]
            )
            assert min(room, _has(machine, machine.owners[name])) <= 0, (
                f"{name} kept {room} of what a bank charged back"
            )
            assert room < MICROS_PER_CENT or not _left_to_ask(dispute, machine.owners[name], since), (
                f"{name} was not asked"
            )


def _kept_of(machine: Whole, customer: UUID, provider: UUID, since: datetime) -> int:
    """What a provider has of what this customer paid since, as the naive books say."""
    rows = [one for one in machine.model.shares if (one.job.owner, one.provider) == (customer, provider)]
    window = timedelta(seconds=WINDOW_SECONDS)
    return sum(one.kept for one in rows if one.job.asset == USD_ASSET_ID and one.until - window >= since)


def _taken_from(customer: UUID, provider: UUID) -> int:
    mine = CardDispute.objects.filter(top_up__owner_id=customer)
    taken = ChargebackRecovery.objects.filter(dispute__in=mine, account__owner_id=provider, given_back=None)
    asked = TransferReversal.objects.filter(dispute__in=mine, provider_id=provider, state="requested")
    return sum(one.amount for one in taken) + sum(one.amount for one in asked)


def _has(machine: Whole, provider: UUID) -> int:
    """Of what a chargeback may take: nothing of what an operator has frozen."""
    open_ones = Account.objects.filter(owner_id=provider, is_frozen=False).values_list("kind", flat=True)
    return sum(machine.books.balance(kind, provider) for kind in PAYING[1:] if kind in set(open_ones))


def _left_to_ask(dispute: CardDispute, provider: UUID, since: datetime) -> list[Payout]:
    """What went out to a provider since, and was not recovered for this dispute."""
    rows = Payout.objects.filter(provider_id=provider, rail="stripe", state="confirmed", created_at__gte=since)
    asked = set(dispute.reversals.values_list("stripe_transfer_id", flat=True))
    return [one for one in rows if one.external_id not in asked]
