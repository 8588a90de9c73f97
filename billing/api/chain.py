"""/api/v1/escrow and /api/v1/payouts/{id}/proof: where tokens go in, and how a provider takes them out alone."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.models import EscrowContract, PayoutEntry
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from provider_agent.protocol import id_bytes32

SCOPE = "billing:read"


class EscrowSerializer(serializers.Serializer[Any]):
    """One token that can be paid with here, and the contract that holds it."""

    asset = serializers.CharField(help_text="The token's code, as in a job's payment.")
    scale = serializers.IntegerField(help_text="Its decimal places.")
    chain_id = serializers.IntegerField()
    token = serializers.CharField(help_text="Address of the ERC-20.")
    contract = serializers.CharField(help_text="Address of GpuEscrow: approve it, then call buyCredits or deposit.")
    account = serializers.CharField(
        help_text="Your organisation as buyCredits(bytes32 account, uint256 amount) takes it: what is bought for it is"
        " credited to your balance when its block is final."
    )


class ProofSerializer(serializers.Serializer[dict[str, Any]]):
    """What claim(address account, uint256 cumulative, bytes32[] proof) takes. Anybody may send it."""

    chain_id = serializers.IntegerField()
    contract = serializers.CharField()
    token = serializers.CharField()
    wallet = serializers.CharField(help_text="Who is paid, whoever sends the transaction.")
    cumulative = serializers.CharField(help_text="All that this wallet was ever promised, in base units.")
    merkle_root = serializers.CharField()
    proof = serializers.ListField(child=serializers.CharField())
    call_data = serializers.CharField(help_text="The whole data of the transaction to the contract.")


class EscrowList(APIView):
    """The tokens that this marketplace takes."""

    permission_classes = [HasScope(SCOPE)]

    @extend_schema(operation_id="escrow_contracts", responses=EscrowSerializer(many=True))
    def get(self, request: Request) -> Response:
        account = "0x" + id_bytes32(organisation_of(request).id).hex()
        rows = [
            {
                "asset": contract.asset.code,
                "scale": contract.asset.scale,
                "chain_id": contract.chain_id,
                "token": contract.asset.contract,
                "contract": contract.address,
                "account": account,
            }
            for contract in EscrowContract.objects.select_related("asset").order_by("asset__code")
        ]
        return Response(EscrowSerializer(rows, many=True).data)


class PayoutProof(APIView):
    """How to claim a payout in tokens without this marketplace; 409 until its root is open."""

    permission_classes = [HasScope(SCOPE)]

    @extend_schema(operation_id="payout_proof", responses=ProofSerializer)
    def get(self, request: Request, payout_id: UUID) -> Response:
        from billing.chain import payout_roots  # web3, where there is a chain only

        owner_id = organisation_of(request).id
        if not PayoutEntry.objects.filter(payout_id=payout_id, provider_id=owner_id).exists():
            raise Http404
        found = payout_roots.prove(payout_id)
        return Response(
            ProofSerializer(
                {
                    "chain_id": found.chain_id,
                    "contract": found.contract,
                    "token": found.token,
                    "wallet": found.wallet,
                    "cumulative": str(found.cumulative),
                    "merkle_root": found.root,
                    "proof": found.proof,
                    "call_data": found.call_data,
                }
            ).data
        )
