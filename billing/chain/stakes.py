"""What the ledger could not take for an offence is taken of the provider's stake in a contract, once per offence.

    claim       an offence that found too little, and a wallet of its provider with a stake -> a row, priced now
    send        the row -> slash(wallet, amount, the offence's id, digest of the evidence), within the contract's caps
    (chain)     Slashed is final: slashed; the pool has it
    compensate  the customer's part -> compensate(wallet), where a wallet of the customer's is known
    sweep       all of it, for every contract

A provider's wallets are those that its leases' receipts name, and those that it is paid to: each signed for that. Stake
that is about to leave still counts. What exceeds the contract's cap of a day waits for the next one (UTC); above its
cap of one offence nothing is taken. Where the slasher is a multisig the row waits, and an alert has what to send.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import F

from billing import prices
from billing.account_kinds import AccountKind
from billing.books.chart_of_accounts import account_id_of
from billing.chain import operating
from billing.chain.errors import CallReverted, SignerMissing, TriedTooOften
from billing.chain.reading import builds
from billing.chain.reading.client import client_of
from billing.chain.transactions import planning
from billing.chain.wallets import wallet_owner
from billing.contesting.penalties import PENALTIES
from billing.errors import PriceUnavailable
from billing.models import (
    Account,
    EndRecord,
    EscrowContract,
    EscrowHold,
    Offence,
    Payout,
    PayoutSettings,
    StakeSlash,
    UsageReceipt,
)
from billing.money import BPS_WHOLE
from billing.notices import alerts
from billing.states.chain import StakeSlashState as State
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from marketplace.foundation.states import advance, record_birth
from provider_agent.protocol import ZERO_ADDRESS

CLAIM_WITHIN: Final = timedelta(days=30)  # stake that comes later than that after an offence is not taken for it
OFFENCES_PER_SWEEP_MAX: Final = 200
ROWS_PER_SWEEP_MAX: Final = 200
WALLETS_MAX: Final = 100  # of one provider that are looked at
LEASES_MAX: Final = 1_000  # whose receipts are read for them, the newest first
RETRY: Final = timedelta(hours=1)  # after a refusal, or while a multisig has not signed


def sweep(chain_id: int) -> int:
    """Claim, send, compensate, for every contract of the chain; how many rows moved. One bad row stops no other."""
    moved = claim_due(chain_id)
    rows = StakeSlash.objects.select_related("contract__asset", "offence__asset", "transaction")
    rows = rows.filter(contract__chain_id=chain_id, next_at__lte=clock.now()).order_by("created_at")
    for state, verb in ((State.SENT, _follow), (State.WAITING, send), (State.SLASHED, _compensate_due)):
        for row in rows.filter(state=state)[:ROWS_PER_SWEEP_MAX]:
            with log_failures("A stake could not be slashed.", stake_slash_id=str(row.pk)):
                moved += verb(row)
    return moved


def claim_due(chain_id: int) -> int:
    """Write down what recent offences that found too little may take of stakes on this chain; how many rows."""
    contracts = list(EscrowContract.objects.select_related("asset").filter(chain_id=chain_id))
    unpaid = Offence.objects.select_related("asset").filter(
        taken__lt=F("penalty"), slashes=None, created_at__gt=clock.now() - CLAIM_WITHIN
    )
    made = 0
    for offence in unpaid.order_by("created_at")[:OFFENCES_PER_SWEEP_MAX]:
        with log_failures("An offence's stake could not be claimed.", offence_id=str(offence.pk)):
            made += _claim(offence, contracts) is not None
    return made


def send(row: StakeSlash) -> bool:
    """Plan the row's slash, of what is staked and allowed now; whether it moved. Raises ChainError."""
    amount = _allowed(row)
    if not amount:
        advance(row, State.FORGONE, reason="nothing_staked", next_at=clock.now())
        return True
    try:
        planned = operating.submit(call_of(row, amount))
    except SignerMissing:
        _wait(row, "the slasher's wallet has to sign", clock.now() + RETRY)
        _alert(
            row,
            f"takes {amount} base units of {row.wallet}: the slasher's wallet has to send what"
            f" `souk chain slash {row.offence_id} --print` says.",
        )
        return False
    except (CallReverted, TriedTooOften) as error:
        is_capped = isinstance(error, CallReverted) and "ExceedsDailyCap" in str(error)
        _wait(row, str(error), _tomorrow(row.contract) if is_capped else clock.now() + RETRY)
        if not is_capped:
            _alert(row, f"could not be taken of {row.wallet}: {error}")
        return False
    advance(row, State.SENT, reason="planned", transaction=planned, data={"amount": str(amount)})
    return True


def call_of(row: StakeSlash, amount: int | None = None) -> operating.Call:
    """The row's call, as it is sent or given to a multisig. Raises ChainError."""
    return operating.slash(
        row.contract,
        offence_id=row.offence_id,
        wallet=row.wallet,
        amount=_allowed(row) if amount is None else amount,
        evidence_hash=row.evidence_hash,
    )


def compensation_of(row: StakeSlash, wallet: str = "") -> operating.Call:
    """What is left of the customer's part, to its wallet."""
    return operating.compensate(
        row.contract, offence_id=row.offence_id, wallet=wallet or row.customer, amount=to_compensate(row)
    )


def to_compensate(row: StakeSlash) -> int:
    """What of the slashed stake the customer has not got yet; the rest stays in the pool."""
    return row.slashed * row.customer_bps // BPS_WHOLE - row.compensated


def note_slashed(contract: EscrowContract, offence_id: UUID, wallet: str, amount: int) -> None:
    """By a final event of the chain; in the transaction that books it."""
    row = StakeSlash.objects.select_for_update().filter(contract=contract, offence_id=offence_id).first()
    if row is None or row.slashed:
        return
    advance(row, State.SLASHED, reason="final_on_chain", slashed=amount, wallet=wallet, next_at=clock.now())
    alerts.close(_alert_key(row))
    if covered(row.offence) >= row.offence.penalty:
        alerts.close(f"offence/{offence_id}")


def note_compensated(contract: EscrowContract, offence_id: UUID, amount: int) -> None:
    """The same of a compensation; what an operator gives beyond the customer's part is not counted."""
    row = StakeSlash.objects.select_for_update().filter(contract=contract, offence_id=offence_id).first()
    if row is None or row.state != State.SLASHED:
        return
    row.compensated += min(amount, to_compensate(row))
    row.save(update_fields=["compensated"])
    if not to_compensate(row):
        advance(row, State.COMPENSATED, reason="final_on_chain")
        alerts.close(_alert_key(row))


def covered(offence: Offence) -> int:
    """What was found of a penalty in the ledger and in stakes, in its asset's base units."""
    rows = StakeSlash.objects.filter(offence=offence)
    return offence.taken + sum(row.owed * min(row.slashed, row.wanted) // row.wanted for row in rows)


def evidence_hash(offence: Offence) -> str:
    """The digest that the contract keeps: SHA-256 of the offence's facts as JSON with sorted keys and no spaces."""
    facts: dict[str, Any] = {
        "offence": str(offence.pk),
        "reason": offence.reason,
        "job": str(offence.job_id or ""),
        "lease": str(offence.lease_id or ""),
        "evidence": offence.evidence,
    }
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return "0x" + hashlib.sha256(text.encode()).hexdigest()


def wallets_of(provider_id: UUID, lease_id: UUID | None = None) -> list[str]:
    """The provider's wallets: of this lease first, then where it is paid to, then of its other leases; each once.

    A changed destination does not take the earlier ones away from those it was paid to.
    """
    chosen = PayoutSettings.objects.filter(provider_id=provider_id)
    paid = Payout.objects.filter(provider_id=provider_id, rail="chain").order_by("-created_at")
    leases = EndRecord.objects.filter(provider_id=provider_id).order_by("-ended_at").values_list("lease_id", flat=True)
    named = UsageReceipt.objects.exclude(provider=ZERO_ADDRESS)
    found = [
        *named.filter(lease_id__in=[lease_id] if lease_id else []).values_list("provider", flat=True)[:1],
        *chosen.filter(rail="chain").values_list("destination", flat=True),
        *chosen.filter(next_rail="chain").values_list("next_destination", flat=True),
        *paid.values_list("destination", flat=True)[:LEASES_MAX],
        *named.filter(lease_id__in=list(leases[:LEASES_MAX]), seq=1).values_list("provider", flat=True),
    ]
    return list({address.lower(): address for address in reversed(found)}.values())[::-1][:WALLETS_MAX]


def _claim(offence: Offence, contracts: list[EscrowContract]) -> StakeSlash | None:
    """The offence's one row: its own asset's contract before others, the wallet with the largest stake."""
    wallets = wallets_of(offence.provider_id, offence.lease_id)
    owed = offence.penalty - offence.taken
    for contract in sorted(contracts, key=lambda one: (one.asset_id != offence.asset_id, one.asset_id)):
        staked = {wallet: _staked(contract, wallet) for wallet in wallets}
        wallet = max(staked, key=lambda one: staked[one], default="")
        if not wallet or not staked[wallet]:
            continue
        try:
            wanted, seen = _priced(offence, contract, owed)
        except PriceUnavailable as error:
            alerts.raise_once(
                f"stake_slash/price/{offence.pk}",
                kind="stake_slash",
                subject=offence.pk,
                message=f"The offence {offence.pk} owes {owed} base units of {offence.asset.code}, and"
                f" {wallet} has a stake in {contract.asset.code}, which has no price now: {error} It is tried again.",
            )
            continue
        alerts.close(f"stake_slash/price/{offence.pk}")
        if wanted:
            return _write(offence, contract, wallet, owed=owed, wanted=wanted, prices=seen)
    return None


def _write(
    offence: Offence, contract: EscrowContract, wallet: str, *, owed: int, wanted: int, prices: list[dict[str, str]]
) -> StakeSlash:
    hold = EscrowHold.objects.filter(pk=offence.job_id).first() if offence.job_id else None
    with transaction.atomic():
        row, is_new = StakeSlash.objects.get_or_create(
            offence=offence,
            contract=contract,
            defaults={
                "wallet": wallet,
                "owed": owed,
                "wanted": wanted,
                "prices": prices,
                "evidence_hash": evidence_hash(offence),
                "customer": hold.customer if hold else "",
                "customer_bps": PENALTIES[offence.reason].customer_bps if offence.customer_id else 0,
            },
        )
        if is_new:
            record_birth(row, data={"wallet": wallet, "wanted": str(wanted)})
        return row


def _priced(offence: Offence, contract: EscrowContract, owed: int) -> tuple[int, list[dict[str, str]]]:
    """What is owed in the contract's token, rounded down, and the prices that it follows from."""
    if offence.asset_id == contract.asset_id:
        return owed, []
    its, of_stake = prices.current(offence.asset_id), prices.current(contract.asset_id)
    seen = [
        {
            "asset": code,
            "usd_micros": str(one.usd_micros_per_token),
            "source": one.source,
            "at": one.observed_at.isoformat(),
        }
        for code, one in ((offence.asset.code, its), (contract.asset.code, of_stake))
    ]
    return of_stake.units_down(its.usd_micros(owed)), seen


def _staked(contract: EscrowContract, wallet: str) -> int:
    """As the ledger mirrors it: what is about to leave is in it until it has left."""
    account_id = account_id_of(AccountKind.WALLET_STAKE, wallet_owner(wallet), None, contract.asset_id)
    account = Account.objects.filter(pk=account_id).first()
    return account.available if account else 0


def _allowed(row: StakeSlash) -> int:
    """What may be taken now: staked there, and within the cap of an offence and of a day."""
    client, abi = client_of(row.contract.chain_id), builds.load(builds.ESCROW).abi
    at = client.head()
    views = (("staked", row.wallet), ("slashCapPerOffence",), ("slashDailyCap",))
    return min(row.wanted, *(int(client.read(row.contract.address, abi, *view, at=at)) for view in views))


def _tomorrow(contract: EscrowContract) -> datetime:
    """When the contract's day is over, by its own clock."""
    client = client_of(contract.chain_id)
    day = datetime.fromtimestamp(client.header(client.head()).timestamp, UTC).date() + timedelta(days=1)
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _follow(row: StakeSlash) -> bool:
    """A transaction that failed is planned anew later: the stake may have changed, or the day been used up."""
    if row.transaction is None or not planning.has_failed(row.transaction):
        return False
    why = row.transaction.last_error or "the transaction reverted"
    advance(row, State.WAITING, reason=why[:200], only_from=[State.SENT], next_at=clock.now())
    return True


def _compensate_due(row: StakeSlash) -> bool:
    """Plan the customer's part; where no wallet is known, an operator gets one alert."""
    if not to_compensate(row):
        return False
    if not row.customer:
        _alert(
            row,
            f"put {row.slashed} base units into the pool. {to_compensate(row)} are the customer's, whose wallet is not"
            f" known: ask for it, then `souk chain compensate {row.offence_id} --to WALLET`.",
        )
    else:
        try:
            operating.submit(compensation_of(row))
        except (SignerMissing, CallReverted, TriedTooOften) as error:
            _alert(
                row,
                f"owes {row.customer} {to_compensate(row)} base units of the pool: {error}"
                f" See `souk chain compensate {row.offence_id} --print`.",
            )
    _wait(row, row.reason, clock.now() + RETRY)
    return False


def _wait(row: StakeSlash, reason: str, until: datetime) -> None:
    StakeSlash.objects.filter(pk=row.pk).update(reason=reason[:200], next_at=until)


def _alert(row: StakeSlash, what: str) -> None:
    alerts.raise_once(
        _alert_key(row),
        kind="stake_slash",
        subject=row.offence_id,
        message=f"The offence {row.offence_id} of provider {row.offence.provider_id} {what}",
    )


def _alert_key(row: StakeSlash) -> str:
    return f"stake_slash/{row.pk}"
