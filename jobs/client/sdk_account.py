"""The marketplace from Python, who I am and my money: balance, top-ups, payouts. `sdk.Souk` is this and jobs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from itertools import islice
from types import TracebackType
from typing import IO, Self, TypeVar
from uuid import UUID

from jobs.client.settings import choose_key, choose_server, load_settings
from jobs.client.transport import Transport
from jobs.wire import (
    BalanceView,
    DepositView,
    MeView,
    PayoutSettingsView,
    PayoutView,
    ProofView,
    SignIn,
    TransferView,
    Wire,
)
from jobs.wire.topups import TopUpView

DEPOSITS_MAX = 200
PAGES_MAX = 1000

View = TypeVar("View", bound=Wire)


class Account:
    """The part of `Souk` that is the same for customers and providers."""

    def __init__(self, server: str, key: str = "") -> None:
        self.transport = Transport(server, key)

    @classmethod
    def from_settings(cls, server: str | None = None) -> Self:
        """As the command does: the server and key from the environment or from what `souk login` remembered."""
        settings = load_settings()
        chosen = choose_server(server, settings)
        return cls(chosen, choose_key(chosen, settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self.transport.close()

    def login(self, email: str, password: str, *, organisation: str = "", code: str = "") -> SignIn:
        """A new key for this command, in the organisation of this name or id where the user belongs to several.

        It replaces none. `code`: of the second factor, where the account has one.
        """
        body = {"email": email, "password": password, "organisation": organisation, "code": code}
        return SignIn.model_validate(
            self.transport.post("/login", {name: value for name, value in body.items() if value})
        )

    def sign_up(self, email: str, password: str, *, organisation: str = "", invitation: str = "") -> str:
        """An account with an organisation of its own, or in the one that invited it; `login` is next.

        What the user has to do before, where the marketplace verifies addresses: the account is made by a mailed link.
        Empty: nothing.
        """
        body = {"email": email, "password": password, "organisation": organisation, "invitation": invitation}
        answer = self.transport.post("/signup", {name: value for name, value in body.items() if value})
        return "" if "user" in answer else str(answer.get("message", ""))

    def me(self) -> MeView:
        """In whose name this key acts."""
        return MeView.model_validate(self.transport.get("/me"))

    def balance(self) -> BalanceView:
        """What the organisation has, holds and earned."""
        return BalanceView.model_validate(self.transport.get("/balance"))

    def transfers(self, *, job_id: UUID | None = None, limit: int | None = None) -> list[TransferView]:
        """Every movement of the organisation's money (or only of one job's), newest first."""
        path = "/transfers" if job_id is None else f"/transfers?job={job_id}"
        return list(islice(self.all_of(path, TransferView), limit))

    def deposits(self, *, limit: int = DEPOSITS_MAX) -> list[DepositView]:
        """What was paid in, newest first."""
        return list(islice(self.all_of("/deposits", DepositView), limit))

    def request_top_up(self, usd_micros: int, *, save_card: bool = False) -> TopUpView:
        """Begin to pay in by card; ask `top_up` for its page, and for what became of it."""
        body = {"amount_usd_micros": str(usd_micros), "save_card": save_card}
        return TopUpView.model_validate(self.transport.post("/top-ups", body))

    def top_up(self, top_up_id: UUID) -> TopUpView:
        """One payment by card."""
        return TopUpView.model_validate(self.transport.get(f"/top-ups/{top_up_id}"))

    def save_statement(self, first: date, last: date, *, format: str, into: IO[bytes]) -> int:
        """Every movement of what was earned, both days in it, as `csv`, `pdf` or `json`; how many bytes that were."""
        query = {"from": first.isoformat(), "to": last.isoformat(), "format": format}
        return self.transport.save("/statements", into, **query)

    def payout_settings(self) -> list[PayoutSettingsView]:
        """Where what was earned goes, a row an asset."""
        found = self.transport.get("/payout-settings")["settings"]
        return [PayoutSettingsView.model_validate(row) for row in found]

    def choose_payout(
        self, *, asset: str, rail: str, destination: str, schedule: str = "daily", signature: str = ""
    ) -> PayoutSettingsView:
        """Say where one asset goes from now on; a wallet has signed `payout_wallet_text`."""
        body = {"asset": asset, "rail": rail, "destination": destination, "schedule": schedule, "signature": signature}
        return PayoutSettingsView.model_validate(self.transport.put("/payout-settings", body))

    def payouts(self, *, limit: int | None = None) -> list[PayoutView]:
        """What was paid out, newest first."""
        return list(islice(self.all_of("/payouts", PayoutView), limit))

    def request_payout(self, asset: str) -> PayoutView:
        """Pay out now what is there."""
        return PayoutView.model_validate(self.transport.post("/payouts", {"asset": asset}))

    def payout_proof(self, payout_id: UUID) -> ProofView:
        """What claims a payout in tokens; refused until its root is open."""
        return ProofView.model_validate(self.transport.get(f"/payouts/{payout_id}/proof"))

    def all_of(self, path: str, view: type[View]) -> Iterator[View]:
        """Every row of a list that comes in pages."""
        for _ in range(PAGES_MAX):
            page = self.transport.get(path)
            yield from (view.model_validate(row) for row in page["results"])
            if not page.get("next"):
                return
            path = next_path(page["next"])


def next_path(url: str) -> str:
    """The next page's path and query: the key never follows a link to another address."""
    return url.split("/api/v1", 1)[-1]
