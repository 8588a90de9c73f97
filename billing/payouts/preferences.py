"""Where a provider wants its money: chosen once, changed with a delay, so that a stolen session steals nothing.

choose (first time)     used from the next payout on
choose (another place)  used SOUK_PAYOUT_CHANGE_SECONDS later; the owners are notified by mail, and can choose again
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction

from billing.errors import AmountInvalid
from billing.models import Asset, PayoutSettings
from billing.payouts import notifying
from billing.payouts.calendar import next_due
from billing.payouts.errors import DestinationRefused, PayoutSettingsMissing, RailOff, WalletNotSigned
from billing.rails import registry
from marketplace.foundation import clock
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.models import Event
from provider_agent.protocol import ethereum, payout_wallet_text

SIGNATURE_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True)
class DesiredSettings:
    """What a provider asks for; `signature` is the new wallet's, for a rail that pays wallets."""

    rail: str
    destination: str
    schedule: str = PayoutSettings.Schedule.DAILY
    minimum: int = 0
    signature: str = ""


def choose(provider_id: UUID, asset: Asset, desired: DesiredSettings, *, actor: str) -> PayoutSettings:
    """Keep where this provider's money of one asset goes from now on; a changed destination waits first.

    Raises RailOff, DestinationRefused, WalletNotSigned, AmountInvalid.
    """
    if desired.minimum < 0:
        raise AmountInvalid(value=str(desired.minimum))
    destination = check_destination(asset, desired)  # may ask the rail: before the transaction
    now = clock.now()
    with transaction.atomic():
        row = PayoutSettings.objects.select_for_update().filter(provider_id=provider_id, asset=asset).first()
        is_same = row is not None and (row.rail, row.destination) == (desired.rail, destination)
        is_waiting = row is not None and (row.next_rail, row.next_destination) == (desired.rail, destination)
        if not is_same and registry.row_of(desired.rail).is_wallet:
            _check_signature(provider_id, asset, destination, desired.signature, version=row.version if row else 0)
        if row is None:
            row = _first(provider_id, asset, desired, destination)
        else:
            _change(row, desired, destination, is_same=is_same)
        Event.objects.create(
            subject_kind=notifying.EVENT_KIND,
            subject_id=row.pk,
            from_state="",
            to_state=row.schedule,
            reason="changed" if row.version > 1 else "chosen",
            actor=actor,
            data={
                "provider_id": str(provider_id),
                "asset": asset.code,
                "rail": desired.rail,
                "destination": destination,
                "used_from": (row.next_from or now).isoformat(),
            },
        )
        if not is_same and not is_waiting:
            notifying.notify_destination(row)
        return row


def settings_of(provider_id: UUID, asset: Asset) -> PayoutSettings:
    """What was chosen; raises PayoutSettingsMissing."""
    row = PayoutSettings.objects.select_related("asset").filter(provider_id=provider_id, asset=asset).first()
    if row is None:
        raise PayoutSettingsMissing(asset=asset.code)
    return row


def adopt_ripe_destinations(rows: Sequence[PayoutSettings]) -> None:
    """Begin to use changed destinations whose waiting time is over; the caller holds the rows' locks."""
    now = clock.now()
    ripe = [row for row in rows if row.next_from is not None and row.next_from <= now]
    for row in ripe:
        row.rail, row.destination = row.next_rail, row.next_destination
        row.next_rail, row.next_destination, row.next_from = "", "", None
    PayoutSettings.objects.bulk_update(ripe, ["rail", "destination", "next_rail", "next_destination", "next_from"])


def wallet_text(provider_id: UUID, asset: Asset, destination: str, version: int) -> str:
    """What a new payout wallet signs for the change after `version`."""
    return payout_wallet_text(provider_id, asset.code, destination, change=version + 1)


def check_destination(asset: Asset, desired: DesiredSettings) -> str:
    """The destination as its rail writes it; raises RailOff, DestinationRefused."""
    on = registry.payouts_on()
    if desired.rail not in on or registry.row_of(desired.rail).asset_kind != asset.kind:
        raise RailOff(asset=asset.code, rail=desired.rail, on=", ".join(on) or "nothing yet")
    try:
        return registry.open_payouts(desired.rail).check_destination(desired.destination)
    except ValueError as error:
        raise DestinationRefused(why=str(error)) from error


def _check_signature(provider_id: UUID, asset: Asset, destination: str, signature: str, *, version: int) -> None:
    text = wallet_text(provider_id, asset, destination, version)
    if not signature:
        raise WalletNotSigned(text=text, why="no signature came with the request")
    try:
        signer = ethereum.recover_message(text.encode(), signature[:SIGNATURE_CHARACTERS_MAX])
    except ValueError as error:
        raise WalletNotSigned(text=text, why="what came is not a signature") from error
    if signer.lower() != destination.lower():
        raise WalletNotSigned(text=text, why="another wallet signed")


def _first(provider_id: UUID, asset: Asset, desired: DesiredSettings, destination: str) -> PayoutSettings:
    try:
        with transaction.atomic():
            return PayoutSettings.objects.create(
                provider_id=provider_id,
                asset=asset,
                rail=desired.rail,
                destination=destination,
                schedule=desired.schedule,
                minimum=desired.minimum,
                due_at=next_due(desired.schedule, clock.now()),
            )
    except IntegrityError as error:  # of two who choose first at once, one did
        raise StateConflict(kind="payout settings", id=str(provider_id), to="chosen", state="chosen") from error


def _change(row: PayoutSettings, desired: DesiredSettings, destination: str, *, is_same: bool) -> None:
    now = clock.now()
    if is_same:
        row.next_rail, row.next_destination, row.next_from = "", "", None
    elif (row.next_rail, row.next_destination) != (desired.rail, destination):
        row.next_rail, row.next_destination = desired.rail, destination
        row.next_from = now + timedelta(seconds=settings.SOUK_PAYOUT_CHANGE_SECONDS)
    row.minimum = desired.minimum
    if row.schedule != desired.schedule or (row.failures and row.schedule != PayoutSettings.Schedule.MANUAL):
        row.due_at = next_due(desired.schedule, now)
    row.schedule = desired.schedule
    row.failures, row.last_error = 0, ""  # the provider has acted
    row.version += 1
    row.updated_at = now
    row.save()
