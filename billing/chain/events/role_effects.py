"""What the contract's events about roles do: nothing moves, and the operators learn what no key of ours did."""

from __future__ import annotations

from datetime import UTC, datetime

from billing.chain.events.booking import Booking
from billing.chain.keys import Role
from billing.notices import alerts


def role_proposed(booking: Booking) -> None:
    arguments = booking.arguments
    active_at = datetime.fromtimestamp(int(arguments["activeAt"]), UTC)
    alerts.raise_once(
        _role_alert(booking),
        kind="chain_role",
        severity=alerts.Severity.CRITICAL,
        subject=arguments["account"],
        message=f"{arguments['account']} is to have the role {_role_name(arguments['role'])} of the contract"
        f" {booking.contract.address}. Was it not you, then the admin's key is stolen: before {active_at:%F %T} UTC"
        f" `souk chain veto-role {booking.contract.asset.code} {_role_name(arguments['role'])} {arguments['account']}`"
        " as the arbiter or the pauser.",
    )


def role_vetoed(booking: Booking) -> None:
    alerts.close(_role_alert(booking))


def role_granted(booking: Booking) -> None:
    """A grant that is not ours was not stopped in time: then the alert of its proposal stays open."""
    if booking.is_ours():
        alerts.close(_role_alert(booking))


def role_revoked(booking: Booking) -> None:
    """Whoever has the admin's key takes the vetoes away first; a stolen settler's key may give itself up."""
    arguments = booking.arguments
    if booking.is_ours():
        return
    alerts.raise_once(
        f"chain:role-lost:{booking.contract.pk}:{arguments['role'][:18]}:{arguments['account']}",
        kind="chain_role",
        severity=alerts.Severity.CRITICAL,
        subject=arguments["account"],
        message=f"{arguments['account']} has lost the role {_role_name(arguments['role'])} of the contract"
        f" {booking.contract.address}, and not by us ({booking.event.reference}). Was it not you, then the admin's key,"
        " or this one, is stolen: without an arbiter and a pauser only the admin can veto what is proposed.",
    )


def admin_scheduled(booking: Booking) -> None:
    arguments = booking.arguments
    accept_at = datetime.fromtimestamp(int(arguments["acceptSchedule"]), UTC)
    alerts.raise_once(
        _admin_alert(booking),
        kind="chain_role",
        severity=alerts.Severity.CRITICAL,
        subject=arguments["newAdmin"],
        message=f"{arguments['newAdmin']} is to be the admin of the contract {booking.contract.address}. Was it not"
        f" you, then the admin's key is stolen: before {accept_at:%F %T} UTC call `cancelDefaultAdminTransfer` as the"
        " admin.",
    )


def admin_canceled(booking: Booking) -> None:
    alerts.close(_admin_alert(booking))


def _role_alert(booking: Booking) -> str:
    return f"chain:role:{booking.contract.pk}:{booking.arguments['role'][:18]}:{booking.arguments['account']}"


def _admin_alert(booking: Booking) -> str:
    return f"chain:admin:{booking.contract.pk}"


def _role_name(word: str) -> str:
    return next((role.value for role in Role if "0x" + role.id.hex() == word), word)
