"""What is done at Stripe for providers: their accounts, transfers to them, and from there to their banks."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Final

from billing.rails.stripe.calls import Key, StripeCalls
from billing.rails.stripe.records import CURRENCY, BankPayout, Connected, Moved, Reversal

# Who answers for a provider's account. Stripe bills the platform for separate transfers whatever is said here, and its
# own dashboard for providers (Express) goes with a platform that pays the fees and bears what an account owes; Stripe
# collects, and renews, what it must know of the provider.
CONTROLLER: Final[Mapping[str, Any]] = {
    "fees": {"payer": "application"},
    "losses": {"payments": "application"},
    "requirement_collection": "stripe",
    "stripe_dashboard": {"type": "express"},
}


class ProviderCalls(StripeCalls):
    """The way out."""

    def create_account(self, *, owner_id: str, country: str, email: str, is_repeat: bool = False) -> Connected:
        params: dict[str, Any] = {
            "controller": CONTROLLER,
            "country": country,
            "capabilities": {"transfers": {"requested": True}},
            "settings": {"payouts": {"schedule": {"interval": "manual"}}},
            "metadata": {"organisation_id": owner_id},
        }
        if email:
            params["email"] = email

        def find() -> Connected | None:
            found = self._first("/v1/accounts", {}, "organisation_id", owner_id)
            return Connected.read(found) if found else None

        return self._make(
            lambda one: Connected.read(self._post("/v1/accounts", params, key=one)),
            Key(f"connect-{owner_id}-{country}-{zlib.crc32(email.encode()):x}", is_repeat=is_repeat),
            find=find,
        )

    def fetch_account(self, account_id: str) -> Connected:
        return Connected.read(self._get(f"/v1/accounts/{account_id}"))

    def create_account_link(self, account_id: str, *, refresh_url: str, return_url: str) -> str:
        """A page on which the provider gives Stripe what it must know; good for minutes, and once."""
        params = {
            "account": account_id,
            "refresh_url": refresh_url,
            "return_url": return_url,
            "type": "account_onboarding",
        }
        return str(self._post("/v1/account_links", params)["url"])

    def transfer(
        self, *, account_id: str, amount_cents: int, group: str, metadata: Mapping[str, str], key: Key
    ) -> Moved:
        params = {
            "amount": amount_cents,
            "currency": CURRENCY,
            "destination": account_id,
            "transfer_group": group,
            "metadata": dict(metadata),
        }
        return self._make(
            lambda one: Moved.read(self._post("/v1/transfers", params, key=one)),
            key,
            find=lambda: self.find_transfer(group),
        )

    def find_transfer(self, group: str) -> Moved | None:
        return next((Moved.read(one) for one in self._list("/v1/transfers", {"transfer_group": group})), None)

    def reverse_transfer(
        self, transfer_id: str, *, amount_cents: int, metadata: Mapping[str, str], key: Key
    ) -> Reversal:
        path = f"/v1/transfers/{transfer_id}/reversals"
        params = {"amount": amount_cents, "metadata": dict(metadata)}

        def find() -> Reversal | None:
            found = self._first(path, {}, "outbox_id", metadata["outbox_id"])
            return Reversal.read(found) if found else None

        return self._make(lambda one: Reversal.read(self._post(path, params, key=one)), key, find=find)

    def pay_bank(self, account_id: str, *, amount_cents: int, metadata: Mapping[str, str], key: Key) -> BankPayout:
        """Send what lies in a provider's account at Stripe on to the provider's bank."""
        params = {"amount": amount_cents, "currency": CURRENCY, "metadata": dict(metadata)}
        return self._make(
            lambda one: BankPayout.read(self._post("/v1/payouts", params, key=one, account=account_id)),
            key,
            find=lambda: self.find_bank_payout(account_id, metadata["payout_id"]),
        )

    def fetch_bank_payout(self, account_id: str, bank_payout_id: str) -> BankPayout:
        """One payout of this account; raises StripeMissing where it is no payout of this account."""
        return BankPayout.read(self._get(f"/v1/payouts/{bank_payout_id}", account=account_id))

    def fetch_transfer(self, transfer_id: str) -> Moved:
        return Moved.read(self._get(f"/v1/transfers/{transfer_id}"))

    def list_reversals(self, transfer_id: str) -> list[Reversal]:
        return [Reversal.read(one) for one in self._list(f"/v1/transfers/{transfer_id}/reversals", {})]

    def find_bank_payout(self, account_id: str, payout_id: str) -> BankPayout | None:
        found = self._first("/v1/payouts", {}, "payout_id", payout_id, account=account_id)
        return BankPayout.read(found) if found else None
