"""Which asset pays for a job, what it costs now, and the terms that a lease's node gets; reads the database.

choose        payment of a job file -> the asset, at the price that a quote may promise
terms_of      a lease that is being made -> what its receipts will name
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from django.db.models import Q, QuerySet

from billing import prices
from billing.books.chart_of_accounts import open_usd
from billing.chain.contract import periods
from billing.models import Asset, EscrowContract
from billing.models.ledger import USD_ASSET_ID
from jobs import spec as specs
from jobs.errors import NoEscrowContract, NoWallet, UnknownAsset
from jobs.escrow import delegations
from jobs.payment.terms import USD, Payment
from jobs.spec import SpecError
from marketplace.nodes.models import Node
from provider_agent.protocol import ZERO_ADDRESS, PaymentTerms

ASSETS_MAX: Final = 200
NEAR_ENOUGH: Final = 0.5


def choose(wanted: specs.Payment) -> tuple[Asset, Payment]:
    """The asset that a job file names, with its price of now.

    Raises UnknownAsset, NoEscrowContract; of billing's prices PriceUnavailable.
    """
    if wanted.asset == USD:
        return _dollars(), Payment()
    asset = _paying().filter(code=wanted.asset).first()
    if asset is None:
        raise _unknown(wanted.asset)
    if wanted.mode not in modes_of(asset):
        raise NoEscrowContract(asset=asset.code)
    price = prices.current(asset.pk)
    return asset, Payment(asset.code, asset.scale, price.usd_micros_per_token, str(price.source), price.observed_at)


def modes_of(asset: Asset) -> list[str]:
    """How a job may be paid in it: from a balance here, and where a contract holds it, by that."""
    return ["credits", "escrow"] if periods.terms_of(asset.pk) else ["credits"]


def paying_assets() -> list[Asset]:
    """What a job may be paid in, dollars first."""
    return [_dollars(), *_paying().exclude(pk=USD_ASSET_ID).order_by("pk")[:ASSETS_MAX]]


def terms_of(
    asset: Asset, node: Node, *, rate_per_hour: int, cap: int, customer: str = ZERO_ADDRESS
) -> PaymentTerms | None:
    """What the receipts of a lease on `node` will be signed over; None for dollars. In base units.

    `customer`: the wallet whose hold in the contract pays for it. Raises NoWallet where the contract would not take
    the node's receipts then.
    """
    if asset.pk == USD_ASSET_ID or asset.chain_id is None:
        return None
    provider = delegations.wallet_of(node, asset)
    if customer != ZERO_ADDRESS and not delegations.is_registered(node, asset):
        raise NoWallet(node_id=str(node.pk), asset=asset.code)
    return PaymentTerms(
        asset=asset.code,
        token=asset.contract,
        chain_id=asset.chain_id,
        contract=contract_of(asset),
        provider=provider,
        customer=customer,
        rate_per_hour=rate_per_hour,
        cap=cap,
    )


def contract_of(asset: Asset) -> str:
    """The escrow contract that holds this token; the zero address where there is none."""
    found = EscrowContract.objects.filter(asset=asset).values_list("address", flat=True).first()
    return found or ZERO_ADDRESS


def _paying() -> QuerySet[Asset]:
    return Asset.objects.filter(Q(pk=USD_ASSET_ID) | Q(kind=Asset.Kind.ERC20))


def _dollars() -> Asset:
    """The ledger makes them with its first account; a marketplace without any money quotes in them too."""
    found = Asset.objects.filter(pk=USD_ASSET_ID).first()
    if found is None:
        open_usd()
        found = Asset.objects.get(pk=USD_ASSET_ID)
    return found


def _unknown(code: str) -> UnknownAsset:
    codes: Sequence[str] = [asset.code for asset in paying_assets()]
    known = {each.lower(): each for each in codes}
    near = difflib.get_close_matches(code.lower(), known, n=1, cutoff=NEAR_ENOUGH)
    nearest = known[near[0]] if near else None
    message, expected = f"{code!r} is no asset that this marketplace takes", f"one of {', '.join(codes)}"
    error = SpecError(None, None, "payment.asset", message, expected, nearest)
    return UnknownAsset(str(error), errors=[asdict(error)], count=1, assets=codes)
