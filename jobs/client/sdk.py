"""The marketplace from Python: `with Souk(server, key) as souk: souk.quote(...)`. One method a route, typed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from itertools import islice
from typing import Any, Literal
from urllib.parse import quote as quoted
from uuid import UUID

from billing.proofs.escrow import HoldAuthorization, SignedDelegation, SignedHoldAuthorization
from jobs.client.errors import SoukApiError, TermsRefused
from jobs.client.sdk_organisation import Organisation
from jobs.client.sdk_payments import Payments
from jobs.client.transport import READ_SECONDS
from jobs.client.wallet.key_file import Wallet
from jobs.spec import Spec, canonical
from jobs.wire import (
    ArtifactView,
    AssetList,
    AssetView,
    BillView,
    DelegationList,
    DelegationRequest,
    DelegationView,
    DeployRequest,
    EndpointView,
    EnrolmentTokenView,
    JobCurve,
    JobMetrics,
    JobView,
    NodeView,
    OfferView,
    PlanChecks,
    ProviderView,
    QuoteView,
    StorageView,
    StreamPage,
    SubmitRequest,
    UploadComplete,
    UploadRequest,
    UploadView,
    VolumeRequest,
    VolumeView,
)

COMPLETE_SECONDS = 900.0  # the local store hashes every byte of large files again before it answers
ENDPOINT_NOT_FOUND = "endpoint_not_found"  # the code of `jobs.endpoints.errors.EndpointNotFound`
JOB_NOT_FOUND = "job_not_found"  # the code of `jobs.errors.JobNotFound`


class Souk(Payments, Organisation):
    """A signed-in customer or provider. Raises SoukClientError's classes; safe to repeat after any of them."""

    # --- a job

    def quote(self, spec: Spec | dict[str, Any]) -> QuoteView:
        """A price promise, or the reasons why nothing fits (then `quote_id` is None)."""
        return QuoteView.model_validate(self.transport.post("/quotes", {"spec": _body(spec)}))

    def plan_checks(self, asked: dict[str, Any]) -> PlanChecks | None:
        """How far plans of trainings like one with these facts were off (`GET /plan-checks`).

        None from a marketplace of a version before they were kept.
        """
        try:
            return PlanChecks.model_validate(self.transport.get("/plan-checks", **asked))
        except SoukApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def draw_up(
        self, spec: Spec, quote: QuoteView, customer: str, *, hold_until: int | None = None, allow: Sequence[str] = ()
    ) -> HoldAuthorization:
        """What the wallet `customer` would sign for this quote, compared with the job file; nothing is signed yet.

        `allow`: wallets of the quote's providers who alone may be paid; all of the quote's where it is left out.
        Raises TermsRefused where the marketplace wants anything else, and UsageMistake where it names another contract
        for the token than it used to.
        """
        from jobs.client.wallet import authorizing
        from jobs.client.wallet.known_contracts import KnownContract, remember_contract

        token = next((each for each in self.assets() if each.code == quote.asset), None)
        known = KnownContract.of(token) if token else None
        if token is None or known is None:
            raise TermsRefused(f"The quote is in {quote.asset}, for which no contract is here.")
        authorization = authorizing.draw_up(spec, quote, token, customer, hold_until=hold_until, allow=allow)
        remember_contract(self.transport.server, token.code, known)
        return authorization

    def authorize(
        self, spec: Spec, quote: QuoteView, wallet: Wallet, *, hold_until: int | None = None, allow: Sequence[str] = ()
    ) -> SignedHoldAuthorization:
        """What `submit` needs of a job with `payment.mode: escrow`; the wallet's key goes nowhere. As `draw_up`."""
        from jobs.client.wallet import authorizing

        authorization = self.draw_up(spec, quote, wallet.address, hold_until=hold_until, allow=allow)
        return authorizing.sign(wallet, authorization, quote, allow)

    def begin_upload(self, request: UploadRequest, *, idempotency_key: str | None = None) -> UploadView:
        """Announce the job's files; the answer says where their bytes go, under the same key for the same input."""
        body = request.model_dump(mode="json")
        return UploadView.model_validate(self.transport.post("/uploads", body, idempotency_key=idempotency_key))

    def complete_upload(self, artifact_id: UUID, etags: dict[str, list[str]]) -> None:
        """All bytes were sent; from now on the files can be a job's input."""
        body = UploadComplete(etags=etags).model_dump(mode="json")
        self.transport.post(f"/uploads/{artifact_id}/complete", body, read_seconds=COMPLETE_SECONDS)

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
        return list(islice(self.all_of("/jobs", JobView), limit))

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

    def retry(self, job_id: UUID) -> JobView:
        """A new job with the spec and files of one that has ended, under a fresh quote."""
        return JobView.model_validate(self.transport.post(f"/jobs/{job_id}/retry"))

    def confirm_price(self, job_id: UUID, *, usd_micros_per_token: int) -> JobView:
        """Agree to the lower price of its token that the job waits for."""
        body = {"usd_micros_per_token": str(usd_micros_per_token)}
        return JobView.model_validate(self.transport.post(f"/jobs/{job_id}/confirm-price", body))

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

    def metrics(self, job_id: UUID, *, since: datetime | None = None) -> JobMetrics:
        """What the job's nodes measured of it, oldest first; of the last six hours unless `since` is given."""
        answer = self.transport.get(f"/jobs/{job_id}/metrics", since=since.isoformat() if since else None)
        return JobMetrics.model_validate(answer)

    def curve(self, job_id: UUID) -> JobCurve:
        """What the job's program reported of its training: the whole run, in at most 1,000 points a series.

        An empty one from a marketplace of a version before there were curves.
        """
        try:
            answer = self.transport.get(f"/jobs/{job_id}/curve")
        except SoukApiError as error:
            if error.status != HTTPStatus.NOT_FOUND or error.code == JOB_NOT_FOUND:
                raise
            return JobCurve(stride=1, series=[], has_more_names=False)
        return JobCurve.model_validate(answer)

    def artifacts(self, job_id: UUID) -> list[ArtifactView]:
        """Checkpoints, outputs and prepared data of a job, newest first, without addresses."""
        return list(self.all_of(f"/jobs/{job_id}/artifacts", ArtifactView))

    def storage(self) -> StorageView:
        """What the organisation keeps, and what that costs."""
        return StorageView.model_validate(self.transport.get("/storage"))

    def delete_artifact(self, artifact_id: UUID) -> ArtifactView:
        """Delete the files of a complete artifact that no living job needs; a repeat changes nothing."""
        return ArtifactView.model_validate(self.transport.delete(f"/artifacts/{artifact_id}"))

    def artifact(self, artifact_id: UUID, *, is_damaged: bool = False) -> ArtifactView:
        """One artifact with an address for each file, which expires.

        `is_damaged`: the addresses of before gave other bytes than announced; the server may know a second copy.
        """
        query = "?damaged=true" if is_damaged else ""
        return ArtifactView.model_validate(self.transport.get(f"/artifacts/{artifact_id}{query}"))

    # --- volumes

    def volumes(self) -> list[VolumeView]:
        """The organisation's volumes, newest first, each with its newest version."""
        return list(self.all_of("/volumes", VolumeView))

    def volume(self, name: str) -> VolumeView:
        """One volume with all its versions, newest first."""
        return VolumeView.model_validate(self.transport.get(f"/volumes/{quoted(name, safe='')}"))

    def put_volume(
        self,
        name: str,
        *,
        artifact_id: UUID | None = None,
        job: str | None = None,
        source: str = "",
        idempotency_key: str | None = None,
    ) -> VolumeView:
        """Make a complete upload, or what a job left (its id or name), the newest version of a volume."""
        body = VolumeRequest(name=name, artifact_id=artifact_id, job=job, source=source).model_dump(mode="json")
        return VolumeView.model_validate(self.transport.post("/volumes", body, idempotency_key=idempotency_key))

    def delete_volume(self, name: str, *, version: int | None = None) -> VolumeView:
        """Delete a volume, or one version that is superseded; what it was. Living jobs keep what they have."""
        query = f"?version={version}" if version is not None else ""
        return VolumeView.model_validate(self.transport.delete(f"/volumes/{quoted(name, safe='')}{query}"))

    def bill(self, job_id: UUID) -> BillView:
        """What the job cost, with every receipt."""
        return BillView.model_validate(self.transport.get(f"/jobs/{job_id}/bill"))

    def export_bill(self, job_id: UUID) -> dict[str, Any]:
        """The bill with the marketplace's signature, as it came: what is signed must not be changed."""
        export: dict[str, Any] = self.transport.get(f"/jobs/{job_id}/bill/export")
        return export

    # --- what is served

    def endpoints(self) -> list[EndpointView]:
        """The organisation's endpoints, newest first."""
        return list(self.all_of("/endpoints", EndpointView))

    def endpoint(self, endpoint_id: UUID) -> EndpointView:
        """One endpoint with its versions and live replicas."""
        return EndpointView.model_validate(self.transport.get(f"/endpoints/{endpoint_id}"))

    def deploy(
        self, endpoint_id: UUID, spec: Spec | dict[str, Any], *, input_artifact_id: UUID | None = None
    ) -> EndpointView:
        """A new version of what is served; deploying what is there already changes nothing."""
        body = DeployRequest(spec=_body(spec), input_artifact_id=input_artifact_id).model_dump(mode="json")
        return EndpointView.model_validate(self.transport.post(f"/endpoints/{endpoint_id}/versions", body))

    def rollback(self, endpoint_id: UUID) -> EndpointView:
        """Let the version before the newest answer again."""
        path = f"/endpoints/{endpoint_id}"
        try:
            found = self.transport.post(f"{path}/rollback")
        except SoukApiError as error:
            if error.status != HTTPStatus.NOT_FOUND or error.code == ENDPOINT_NOT_FOUND:
                raise
            found = self.transport.post(f"{path}/take-back")  # a marketplace of the version before has this path alone
        return EndpointView.model_validate(found)

    def take_back(self, endpoint_id: UUID) -> EndpointView:
        """Old name of `rollback`, which goes with the next version."""
        warnings.warn("Souk.take_back is called Souk.rollback now.", DeprecationWarning, stacklevel=2)
        return self.rollback(endpoint_id)

    def assets(self) -> list[AssetView]:
        """What a job may be paid in."""
        return AssetList.model_validate(self.transport.get("/assets")).results

    # --- the market

    def offers(self) -> list[OfferView]:
        """What can be rented now."""
        return list(self.all_of("/offers", OfferView))

    def create_provider(self, name: str) -> ProviderView:
        """Make the organisation a provider, under the name that customers see; 409 where it is one already."""
        return ProviderView.model_validate(self.transport.post("/provider", {"display_name": name}))

    def issue_enrolment_token(self) -> EnrolmentTokenView:
        """A token that enrols one node, with its install command; it is shown once."""
        return EnrolmentTokenView.model_validate(self.transport.post("/provider/enrolment-tokens"))

    def nodes(self) -> list[NodeView]:
        """The provider's nodes."""
        return list(self.all_of("/provider/nodes", NodeView))

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


def _body(spec: Spec | dict[str, Any]) -> dict[str, Any]:
    return canonical(spec) if isinstance(spec, Spec) else spec
