"""Tokens and the contracts that hold them become assets of the ledger; their facts are read from the chain."""

from __future__ import annotations

import re
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import Max

from billing.chain.config import chain_of
from billing.chain.errors import AssetCodeTaken, ContractRefused, ContractUnknown, TokenRefused
from billing.chain.reading import builds
from billing.chain.reading.client import client_of
from billing.chain.wallets import checksummed
from billing.models import Asset, EscrowContract
from billing.models.ledger import USD_ASSET_ID

SCALE_MAX: Final = 36
ASSETS_LOCK: Final = 0x50_55_4B_41  # advisory: one new asset at a time

_CODE: Final = re.compile(r"[A-Z][A-Z0-9.]{1,15}")


def register_token(code: str, chain_id: int, token: str) -> Asset:
    """The asset of an ERC-20, made at the first call; its scale is the token's own.

    Raises AssetCodeTaken, TokenRefused, ChainUnknown, and what the endpoints cannot agree on.
    """
    if not _CODE.fullmatch(code):
        raise TokenRefused(token=token, why="its code is 2 to 16 capital letters and digits, such as USDC")
    address = _token_address(token)
    client = client_of(chain_id)
    at = client.head()
    if not client.code(address):
        raise TokenRefused(token=address, why="there is no contract at this address")
    try:
        scale = int(client.read(address, builds.ERC20_ABI, "decimals", at=at))
    except Exception as error:
        raise TokenRefused(token=address, why=f"it does not say its decimals ({type(error).__name__})") from error
    if not 0 <= scale <= SCALE_MAX:
        raise TokenRefused(token=address, why=f"{scale} decimals are more than {SCALE_MAX}")
    return _asset(code, kind=Asset.Kind.ERC20, scale=scale, chain_id=chain_id, contract=address)


def register_coin(chain_id: int) -> Asset:
    """The asset of a chain's own coin, which gas is paid in."""
    config = chain_of(chain_id)
    found = Asset.objects.filter(kind=Asset.Kind.NATIVE, chain_id=chain_id).first()
    if found is not None:
        return found
    code = f"{config.coin}.{chain_id}"[:16]
    return _asset(code, kind=Asset.Kind.NATIVE, scale=config.coin_scale, chain_id=chain_id, contract="")


def register_escrow(asset: Asset, address: str, *, deployed_block: int) -> EscrowContract:
    """The contract that holds this token for us, if its code is our build's; raises ContractRefused.

    Its events are followed from `deployed_block` on.
    """
    if asset.chain_id is None or asset.kind != Asset.Kind.ERC20:
        raise ContractRefused(address=address, why=f"{asset.code} is no token")
    where = checksummed(address)
    client = client_of(asset.chain_id)
    code = client.code(where)
    build = builds.load(builds.ESCROW)
    if not build.is_deployed_as(code):
        raise ContractRefused(address=where, why="its code is not that of GpuEscrow as it is built here")
    at = client.head()
    token = str(client.read(where, build.abi, "token", at=at))
    if token.lower() != asset.contract.lower():
        raise ContractRefused(address=where, why=f"it holds the token {token}, not {asset.contract}")
    fee_recipient = str(client.read(where, build.abi, "feeRecipient", at=at))
    contract, _ = EscrowContract.objects.get_or_create(
        asset=asset,
        defaults={
            "chain_id": asset.chain_id,
            "address": where,
            "deployed_block": deployed_block,
            "scanned_block": max(0, deployed_block - 1),
            "code_hash": _keccak(code),
            "fee_recipient": fee_recipient,
        },
    )
    if contract.address != where:
        raise ContractRefused(address=where, why=f"{asset.code} is held by {contract.address} already")
    register_coin(asset.chain_id)
    return contract


def contract_of(asset_id: int) -> EscrowContract:
    """The contract of an asset; raises ContractUnknown."""
    found = EscrowContract.objects.select_related("asset").filter(asset_id=asset_id).first()
    if found is None:
        asset = Asset.objects.filter(pk=asset_id).first()
        raise ContractUnknown(asset=asset.code if asset else f"asset {asset_id}")
    return found


def _asset(code: str, **fields: Any) -> Asset:
    with transaction.atomic():
        # One at a time: an id is taken once. No row lock: the servers' role may update no row of this table.
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [ASSETS_LOCK])
        same = Asset.objects.filter(chain_id=fields["chain_id"], contract=fields["contract"]).first()
        if same is not None:
            if same.code != code:
                raise AssetCodeTaken(asset=f"{code} (this token is {same.code} here)")
            return same
        if Asset.objects.filter(code=code).exists() or code == "USD":
            raise AssetCodeTaken(asset=code)
        newest = Asset.objects.aggregate(newest=Max("pk"))["newest"] or USD_ASSET_ID
        return Asset.objects.create(pk=newest + 1, code=code, **fields)


def _token_address(token: str) -> str:
    try:
        return checksummed(token)
    except ValueError as error:
        raise TokenRefused(token=token[:60], why=str(error)) from None


def _keccak(code: bytes) -> str:
    from eth_utils.crypto import keccak

    return "0x" + bytes(keccak(code)).hex()
