"""Many payouts' money set aside at once: a few statements for a batch, and for each provider what it would get alone.

    1. adopt     destinations whose waiting time is over
    2. lock      every account of everybody, in one order (the settings are locked by the caller, before)
    3. keep      the reserve's part of what new providers earned
    4. reserve   one group of pending transfers, the payouts, their events

A batch never waits for an account while it holds others (`is_patient` false): whoever's account somebody else holds is
left out and `busy`, so that no batch is ever part of a deadlock, whatever order others lock in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.errors import AccountFrozen, BillingError
from billing.models import Account, Payout, PayoutSettings
from billing.payouts import rolling_reserve
from billing.payouts.errors import NothingToPay, PayoutUnderWay, RailOff
from billing.payouts.preferences import adopt_ripe_destinations
from billing.payouts.rolling_reserve import Owner
from billing.rails import registry
from billing.states import PAYOUT_STATES_OPEN, PayoutState
from billing.transfer_codes import TransferCode, TransferMode
from marketplace.foundation.ids import new_id
from marketplace.foundation.states import advance_all, record_births

KINDS: Final = (AccountKind.PROVIDER_AVAILABLE, AccountKind.PROVIDER_RESERVE, AccountKind.PAYOUT_CLEARING)


@dataclass
class Reserved:
    """What became of each: a payout, a reason, or (`busy`) neither yet. By the id of their settings."""

    payouts: list[Payout] = field(default_factory=list)
    refused: dict[UUID, BillingError] = field(default_factory=dict)
    busy: list[UUID] = field(default_factory=list)


def open_payers(rows: Sequence[PayoutSettings]) -> None:
    """See that the accounts are there, before any of them is locked."""
    open_accounts([name for row in rows for name in _names(row)])


def reserve_payouts(
    rows: Sequence[PayoutSettings], *, actor: str, is_patient: bool, retry_of: Payout | None = None
) -> Reserved:
    """A payout of all that is there for each, reserved; the caller's transaction holds the settings' locks.

    P21: never more than is available. `retry_of` is for one row alone.
    """
    done = Reserved()
    adopt_ripe_destinations(rows)
    left = _refuse_early(rows, done)
    accounts = _lock(left, is_patient=is_patient)
    left = [row for row in left if _is_free(row, accounts, done)]
    units = {_owner(row): accounts[_owner(row)][AccountKind.PROVIDER_AVAILABLE].available for row in left}
    for owner, kept in rolling_reserve.keep(units).items():
        units[owner] -= kept
    wanted: list[tuple[PayoutSettings, int]] = []
    for row in left:
        amount = payable(row, units[_owner(row)])
        if amount < max(row.minimum, 1):
            asset = row.asset
            done.refused[row.pk] = NothingToPay(available=asset.show(amount), minimum=asset.show(row.minimum))
        else:
            wanted.append((row, amount))
    done.payouts = _reserve(wanted, accounts, actor=actor, retry_of=retry_of)
    return done


def payable(row: PayoutSettings, available: int) -> int:
    """What the rail could pay of this: all, less the dust that it cannot move."""
    unit = registry.row_of(row.rail).unit
    return max(available, 0) // unit * unit


def _refuse_early(rows: Sequence[PayoutSettings], done: Reserved) -> list[PayoutSettings]:
    """Those who need not be locked are left out."""
    on = registry.payouts_on()
    owners = [row.provider_id for row in rows]
    open_ones = Payout.objects.filter(provider_id__in=owners, state__in=sorted(PAYOUT_STATES_OPEN))
    under_way = set(open_ones.values_list("provider_id", "asset_id"))
    left = []
    for row in rows:
        if _owner(row) in under_way:
            done.refused[row.pk] = PayoutUnderWay()
        elif row.rail not in on:
            done.refused[row.pk] = RailOff(asset=row.asset.code, rail=row.rail, on=", ".join(on) or "nothing yet")
        else:
            left.append(row)
    return left


def _lock(rows: Sequence[PayoutSettings], *, is_patient: bool) -> dict[Owner, dict[str, Account]]:
    """The accounts that could be locked, as they are under the lock."""
    ids = [name.id for row in rows for name in _names(row)]
    free = Account.objects.filter(pk__in=ids).order_by("pk").select_for_update(no_key=True, skip_locked=not is_patient)
    accounts: dict[Owner, dict[str, Account]] = {_owner(row): {} for row in rows}
    for account in free:
        if account.owner_id is not None:
            accounts[account.owner_id, account.asset_id][account.kind] = account
    return accounts


def _is_free(row: PayoutSettings, accounts: dict[Owner, dict[str, Account]], done: Reserved) -> bool:
    mine = accounts[_owner(row)]
    if len(mine) < len(KINDS):
        done.busy.append(row.pk)
        return False
    available = mine[AccountKind.PROVIDER_AVAILABLE]
    if available.is_frozen:
        done.refused[row.pk] = AccountFrozen(account=str(available))
        return False
    return True


def _reserve(
    wanted: Sequence[tuple[PayoutSettings, int]],
    accounts: dict[Owner, dict[str, Account]],
    *,
    actor: str,
    retry_of: Payout | None,
) -> list[Payout]:
    """Set the money aside: from here on it is neither spendable nor gone."""
    if not wanted:
        return []
    ids = [new_id() for _ in wanted]
    pending = ledger.post(
        [
            ledger.NewTransfer(
                accounts[_owner(row)][AccountKind.PROVIDER_AVAILABLE],
                accounts[_owner(row)][AccountKind.PAYOUT_CLEARING],
                amount,
                TransferCode.PAYOUT,
                mode=TransferMode.PENDING,
                external_ref=f"payout:{payout_id}",
            )
            for payout_id, (row, amount) in zip(ids, wanted, strict=True)
        ],
        group_id=ids[0] if len(ids) == 1 else None,
    )
    payouts = Payout.objects.bulk_create(
        Payout(
            id=payout_id,
            provider_id=row.provider_id,
            rail=row.rail,
            asset_id=row.asset_id,
            amount=amount,
            destination=row.destination,
            pending_transfer=transfer,
            retry_of=retry_of,
        )
        for payout_id, (row, amount), transfer in zip(ids, wanted, pending, strict=True)
    )
    born = {one.pk: {"amount": str(one.amount), "destination": one.destination} for one in payouts}
    record_births(payouts, actor=actor, data=born)
    return advance_all(payouts, PayoutState.RESERVED, reason="reserved", actor=actor)


def _owner(row: PayoutSettings) -> Owner:
    return row.provider_id, row.asset_id


def _names(row: PayoutSettings) -> list[AccountName]:
    return [AccountName(kind, row.provider_id, asset_id=row.asset_id) for kind in KINDS]
