"""The marketplace from Python: `with Souk(server, key) as souk: souk.quote(...)`. One method a route, typed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from itertools import islice
from types import TracebackType
from typing import IO, Any, Literal, Self, TypeVar
from uuid import UUID

from jobs.client.errors import TermsRefused
from jobs.client.settings import choose_key, choose_server, load_settings
from jobs.client.transport import READ_SECONDS, Transport
from jobs.client.wallet import Wallet
from jobs.spec import Spec, canonical
from jobs.wire import (
    ArtifactView,
    AssetList,
    AssetView,
    BalanceView,
    BillView,
    DelegationList,
    DelegationRequest,
    DelegationView,
    DepositView,
    EnrolmentTokenView,
    JobView,
    MeView,
    NodeView,
    OfferView,
    PayoutSettingsView,
    PayoutView,
    ProofView,
    ProviderView,
    QuoteView,
    SignIn,
    StreamPage,
    SubmitRequest,
    TransferView,
    UploadComplete,
    UploadRequest,
    UploadView,
    Wire,
)
from jobs.wire.topups import TopUpView
from provider_agent.protocol import HoldAuthorization, SignedDelegation, SignedHoldAuthorization

DEPOSITS_MAX = 200
PAGES_MAX = 1000

View = TypeVar("View", bound=Wire)


class Souk:
    """A signed-in customer or provider. Raises SoukClientError's classes; safe to repeat after any of them."""

    def __init__(self, server: str, key: str = "") -> None:
        self.transport = Transport(server, key)

    @classmethod
    def from_settings(cls, server: str | None = None) -> Souk:
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

    # --- who I am

    def login(self, email: str, password: str) -> SignIn:
        """A new key for this command; it replaces none."""
        return SignIn.model_validate(self.transport.post("/login", {"email": email, "password": password}))

    def sign_up(self, email: str, password: str, *, organisation: str = "", invitation: str = "") -> None:
        """An account with an organisation of its own, or in the one that invited it; `login` is next."""
        body = {"email": email, "password": password, "organisation": organisation, "invitation": invitation}
        self.transport.post("/signup", {name: value for name, value in body.items() if value})

    def me(self) -> MeView:
        """In whose name this key acts."""
        return MeView.model_validate(self.transport.get("/me"))

    def balance(self) -> BalanceView:
        """What the organisation has, holds and earned."""
        return BalanceView.model_validate(self.transport.get("/balance"))

    def transfers(self, *, job_id: UUID | None = None, limit: int | None = None) -> list[TransferView]:
        """Every movement of the organisation's money (or only of one job's), newest first."""
        path = "/transfers" if job_id is None else f"/transfers?job={job_id}"
        return list(islice(self._all(path, TransferView), limit))

    def deposits(self, *, limit: int = DEPOSITS_MAX) -> list[DepositView]:
        """What was paid in, newest first."""
        return list(islice(self._all("/deposits", DepositView), limit))

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
        return list(islice(self._all("/payouts", PayoutView), limit))

    def request_payout(self, asset: str) -> PayoutView:
        """Pay out now what is there."""
        return PayoutView.model_validate(self.transport.post("/payouts", {"asset": asset}))

    def payout_proof(self, payout_id: UUID) -> ProofView:
        """What claims a payout in tokens; refused until its root is open."""
        return ProofView.model_validate(self.transport.get(f"/payouts/{payout_id}/proof"))

    # --- a job

    def quote(self, spec: Spec | dict[str, Any]) -> QuoteView:
        """A price promise, or the reasons why nothing fits (then `quote_id` is None)."""
        return QuoteView.model_validate(self.transport.post("/quotes", {"spec": _body(spec)}))

    def draw_up(
        self, spec: Spec, quote: QuoteView, customer: str, *, hold_until: int | None = None
    ) -> HoldAuthorization:
        """What the wallet `customer` would sign for this quote, compared with the job file; nothing is signed yet.

        Raises TermsRefused where the marketplace wants anything else, and UsageMistake where it names another contract
        for the token than it used to.
        """
        from jobs.client import authorizing
        from jobs.client.known_contracts import KnownContract, remember_contract

        token = next((each for each in self.assets() if each.code == quote.asset), None)
        known = KnownContract.of(token) if token else None
        if token is None or known is None:
            raise TermsRefused(f"The quote is in {quote.asset}, for which no contract is here.")
        said = authorizing.draw_up(spec, quote, token, customer, hold_until=hold_until)
        remember_contract(self.transport.server, token.code, known)
        return said

    def authorize(
        self, spec: Spec, quote: QuoteView, wallet: Wallet, *, hold_until: int | None = None
    ) -> SignedHoldAuthorization:
        """What `submit` needs of a job with `payment.mode: escrow`; the wallet's key goes nowhere. As `draw_up`."""
        from jobs.client import authorizing

        said = self.draw_up(spec, quote, wallet.address, hold_until=hold_until)
        return authorizing.sign(wallet, said, quote)

    def begin_upload(self, request: UploadRequest) -> UploadView:
        """Announce the job's files; the answer says where their bytes go."""
        return UploadView.model_validate(self.transport.post("/uploads", request.model_dump(mode="json")))

    def complete_upload(self, artifact_id: UUID, etags: dict[str, list[str]]) -> None:
        """All bytes were sent; from now on the files can be a job's input."""
        body = UploadComplete(etags=etags).model_dump(mode="json")
        self.transport.post(f"/uploads/{artifact_id}/complete", body)

    def submit(
        self,
        spec: Spec | dict[str, Any],
        quote_id: UUID,
        *,
        input_artifact_id: UUID | None = None,
        secrets: dict[str, str] | None = None,
        authorization: SignedHoldAuthorization | None = None,
        idempotency_key: str | None = None,
    ) -> JobView:
        """The job, queued. The same idempotency key submits it once, however often this is called.

        `authorization`: what a wallet signed (`authorize`), of a job that it pays straight.
        """
        request = SubmitRequest(
            spec=_body(spec),
            quote_id=quote_id,
            input_artifact_id=input_artifact_id,
            secrets=secrets or {},
            authorization=authorization,
        )
        body = request.model_dump(mode="json")
        return JobView.model_validate(self.transport.post("/jobs", body, idempotency_key=idempotency_key))

    def jobs(self, *, limit: int | None = None) -> list[JobView]:
        """The organisation's jobs, newest first."""
        return list(islice(self._all("/jobs", JobView), limit))

    def job(self, job_id: UUID) -> JobView:
        """One job with its attempts."""
        return JobView.model_validate(self.transport.get(f"/jobs/{job_id}"))

    def cancel(self, job_id: UUID) -> JobView:
        """Ask for the job's end; done once its state says so."""
        return JobView.model_validate(self.transport.post(f"/jobs/{job_id}/cancel"))

    def resume(self, job_id: UUID, *, max_total_usd_micros: int) -> JobView:
        """Go on with a paused job under a higher budget."""
        body = {"max_total_usd_micros": max_total_usd_micros}
        return JobView.model_validate(self.transport.post(f"/jobs/{job_id}/resume", body))

    def stream(
        self,
        job_id: UUID,
        which: Literal["logs", "events"] = "logs",
        *,
        attempt: int = 1,
        node_rank: int = 0,
        offset: int = 0,
        wait_seconds: float = 0,
    ) -> StreamPage:
        """A piece of one attempt's log or events from `offset` on; waits up to `wait_seconds` for something new."""
        answer = self.transport.get(
            f"/jobs/{job_id}/{which}",
            read_seconds=READ_SECONDS + wait_seconds,
            attempt=attempt,
            node_rank=node_rank,
            offset=offset,
            wait_seconds=wait_seconds or None,
        )
        return StreamPage.model_validate(answer)

    def artifacts(self, job_id: UUID) -> list[ArtifactView]:
        """Checkpoints and outputs of a job, newest first, without addresses."""
        return list(self._all(f"/jobs/{job_id}/artifacts", ArtifactView))

    def artifact(self, artifact_id: UUID) -> ArtifactView:
        """One artifact with an address for each file, which expires."""
        return ArtifactView.model_validate(self.transport.get(f"/artifacts/{artifact_id}"))

    def bill(self, job_id: UUID) -> BillView:
        """What the job cost, with every receipt."""
        return BillView.model_validate(self.transport.get(f"/jobs/{job_id}/bill"))

    def export_bill(self, job_id: UUID) -> dict[str, Any]:
        """The bill with the marketplace's signature, as it came: what is signed must not be changed."""
        export: dict[str, Any] = self.transport.get(f"/jobs/{job_id}/bill/export")
        return export

    def assets(self) -> list[AssetView]:
        """What a job may be paid in."""
        return AssetList.model_validate(self.transport.get("/assets")).results

    # --- the market

    def offers(self) -> list[OfferView]:
        """What can be rented now."""
        return list(self._all("/offers", OfferView))

    def create_provider(self, name: str) -> ProviderView:
        """Make the organisation a provider, under the name that customers see; 409 where it is one already."""
        return ProviderView.model_validate(self.transport.post("/provider", {"display_name": name}))

    def issue_enrolment_token(self) -> EnrolmentTokenView:
        """A token that enrols one node, with the line to run there; it is shown once."""
        return EnrolmentTokenView.model_validate(self.transport.post("/provider/enrolment-tokens"))

    def nodes(self) -> list[NodeView]:
        """The provider's nodes."""
        return list(self._all("/provider/nodes", NodeView))

    def export_earnings(self, *, since: datetime | None = None, until: datetime | None = None) -> dict[str, Any]:
        """The provider's own leases with the marketplace's signature, as it came."""
        export: dict[str, Any] = self.transport.get(
            "/provider/earnings/export",
            since=since.isoformat() if since else None,
            until=until.isoformat() if until else None,
        )
        return export

    def delegate(self, node_id: UUID, asset: str, signed: SignedDelegation) -> DelegationView:
        """Give the marketplace what the payout wallet signed for a node's receipt key."""
        body = DelegationRequest(node_id=node_id, asset=asset, signed=signed).model_dump(mode="json")
        return DelegationView.model_validate(self.transport.post("/provider/delegations", body))

    def delegations(self) -> list[DelegationView]:
        """Which wallets the provider's nodes are paid to on chain."""
        return DelegationList.model_validate(self.transport.get("/provider/delegations")).results

    def _all(self, path: str, view: type[View]) -> Iterator[View]:
        """Every row of a list that comes in pages."""
        for _ in range(PAGES_MAX):
            page = self.transport.get(path)
            yield from (view.model_validate(row) for row in page["results"])
            if not page.get("next"):
                return
            path = _relative(page["next"])


def _body(spec: Spec | dict[str, Any]) -> dict[str, Any]:
    return canonical(spec) if isinstance(spec, Spec) else spec


def _relative(url: str) -> str:
    """The next page's path and query: the key never follows a link to another address."""
    return url.split("/api/v1", 1)[-1]
