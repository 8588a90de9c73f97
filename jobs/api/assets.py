"""/api/v1/assets, and /api/v1/provider/delegations: in what jobs are paid, and to which wallets on chain."""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.errors import PriceUnavailable
from billing.models import Asset
from jobs.api.bodies import answer, read_body
from jobs.api.schemas import IDEMPOTENCY_KEY, errors
from jobs.errors import DelegationRefused
from jobs.escrow import delegations
from jobs.models import ReceiptDelegation
from jobs.payment.terms import USD
from jobs.pricing import assets
from jobs.spec import Payment as Wanted
from jobs.wire import AssetList, AssetView, DelegationList, DelegationRequest, DelegationView
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.foundation.actors import actor_of
from marketplace.foundation.errors import NotFound
from marketplace.foundation.idempotency import idempotent
from marketplace.nodes.models import Node
from provider_agent.protocol import ZERO_ADDRESS, ReceiptDomain

DELEGATIONS_MAX = 1000  # newest first, of one provider


class AssetsView(APIView):
    """In what a job may be paid."""

    permission_classes = [HasScope("jobs:read")]

    @extend_schema(operation_id="assets", responses={200: AssetList})
    def get(self, request: Request) -> Response:
        """Dollars first, then every token that a job file may name in `payment.asset`."""
        return answer(AssetList(results=[_show_asset(asset) for asset in assets.paying_assets()]))


class DelegationsView(APIView):
    """The payout wallets of the provider's nodes."""

    permission_classes = [HasScope("billing:read", write="billing:write")]

    @extend_schema(operation_id="delegations", responses={200: DelegationList})
    def get(self, request: Request) -> Response:
        """Newest first, revoked ones too."""
        rows = ReceiptDelegation.objects.filter(node__provider__organisation=organisation_of(request))
        found = rows.select_related("node", "asset").order_by("-created_at")[:DELEGATIONS_MAX]
        return answer(DelegationList(results=[_show(row) for row in found]))

    @extend_schema(
        operation_id="delegation_create",
        parameters=[IDEMPOTENCY_KEY],
        request=DelegationRequest,
        responses={201: DelegationView, **errors(400, 404)},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Keep what a payout wallet signed for a node's receipt key; it takes the place of an earlier one."""
        body = read_body(request, DelegationRequest)
        node = Node.objects.filter(pk=body.node_id, provider__organisation=organisation_of(request)).first()
        asset = Asset.objects.filter(code=body.asset).first()
        if node is None or asset is None or asset.chain_id is None:
            raise NotFound()
        contract = assets.contract_of(asset)
        if contract == ZERO_ADDRESS:
            raise DelegationRefused(why=f"this marketplace has no escrow contract for {asset.code}")
        domain = ReceiptDomain(chain_id=asset.chain_id, verifying_contract=contract)
        row = delegations.delegate(node, asset, body.signed, domain=domain, actor=actor_of(request))
        return answer(_show(row), status.HTTP_201_CREATED)


class DelegationDetailView(APIView):
    """One of them."""

    permission_classes = [HasScope("billing:read", write="billing:write")]

    @extend_schema(operation_id="delegation_revoke", responses={200: DelegationView, **errors(404)})
    def delete(self, request: Request, delegation_id: UUID) -> Response:
        """End it for leases to come; those that run keep the wallet that they were made with."""
        return answer(_show(delegations.revoke(delegation_id, organisation_id=organisation_of(request).id)))


def _show_asset(asset: Asset) -> AssetView:
    try:
        _, payment = assets.choose(Wanted(asset=asset.code))
    except PriceUnavailable:
        payment = None
    return AssetView(
        code=asset.code,
        scale=asset.scale,
        chain_id=asset.chain_id,
        token=asset.contract,
        contract=assets.contract_of(asset) if asset.code != USD else ZERO_ADDRESS,
        usd_micros_per_token=payment.usd_micros_per_token if payment else None,
        price_source=payment.source if payment else "",
        price_observed_at=payment.observed_at if payment else None,
        modes=assets.modes_of(asset),
    )


def _show(row: ReceiptDelegation) -> DelegationView:
    return DelegationView(
        id=row.id,
        node_id=row.node_id,
        node_name=row.node.name,
        asset=row.asset.code,
        chain_id=row.chain_id,
        contract=row.contract,
        wallet=row.wallet,
        receipt_address=row.receipt_address,
        not_after=row.not_after,
        nonce=row.nonce,
        signature=row.signature,
        created_at=row.created_at,
        revoked_at=row.revoked_at,
    )
