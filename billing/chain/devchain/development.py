"""What a development chain gets by itself: a token that anybody mints, an escrow for it, and money to play with."""

from __future__ import annotations

import logging
from typing import Final

from django.conf import settings

from billing.chain.config import chain_of
from billing.chain.contract import deploy
from billing.chain.contract.registry import register_escrow, register_token
from billing.chain.devchain.chain import DEVELOPMENT_KEYS
from billing.chain.devchain.token import MINTED, TOKEN_CODE, TOKEN_DECIMALS, TOKEN_NAME
from billing.chain.keys import Role, SigningKey, key_for
from billing.chain.reading import builds
from billing.chain.reading.client import client_of
from billing.chain.transactions.planning import lock
from billing.models import EscrowContract
from provider_agent.protocol import ethereum

FAUCET_KEY: Final = DEVELOPMENT_KEYS[1]
ROOT_CAP: Final = 10**9 * 10**TOKEN_DECIMALS

log = logging.getLogger(__name__)


def ensure(chain_id: int) -> EscrowContract | None:
    """On a development chain: the escrow, deployed and registered at the first call. None on any other."""
    if not chain_of(chain_id).is_development:
        return None
    found = EscrowContract.objects.filter(chain_id=chain_id).first()
    if found is not None:
        return found
    with lock(f"development:{chain_id}") as is_mine:
        return register(chain_id, *build_town(chain_id)) if is_mine else None


def terms(token: str, admin: str) -> deploy.Terms:
    """Short windows: a developer does not wait a day; SOUK_CHALLENGE_SECONDS sets another time (0 in `souk up`)."""
    return deploy.Terms(
        token=token,
        admin=admin,
        fee_recipient=ethereum.address_of(DEVELOPMENT_KEYS[2]),
        fee_bps=1_000,
        root_daily_cap=ROOT_CAP,
        slash_cap_per_offence=ROOT_CAP,
        slash_daily_cap=ROOT_CAP,
        challenge_seconds=settings.SOUK_CHALLENGE_SECONDS,
        grace_seconds=60,
        dispute_seconds=60,
        close_seconds=0,
        root_delay_seconds=0,
        unstake_seconds=0,
    )


def holders() -> dict[str, str]:
    """Who has the roles: the keys of our environment."""
    return {role.name: key_for(role).address for role in Role if role is not Role.ADMIN}


def build_town(chain_id: int) -> tuple[str, str, int]:
    """Deploy and mint; (token, escrow, the escrow's block)."""
    deployer = SigningKey(ethereum.address_of(DEVELOPMENT_KEYS[3]), DEVELOPMENT_KEYS[3])
    token = deploy.deploy_dev_token(
        chain_id, deployer, name=TOKEN_NAME, symbol=TOKEN_CODE, decimals=TOKEN_DECIMALS
    ).contract
    receipt = deploy.deploy_escrow(chain_id, deployer, terms(token, deployer.address), holders())
    mint = builds.encode(builds.DEV_TOKEN, "mint", [ethereum.address_of(FAUCET_KEY), MINTED])
    deploy.send(client_of(chain_id), deployer, data=mint, to=token, purpose="mint")
    log.info("The development chain has its contract. chain_id=%s coin=%s escrow=%s", chain_id, token, receipt.contract)
    return token, receipt.contract, receipt.block_number


def register(chain_id: int, token: str, escrow: str, block: int) -> EscrowContract:
    """Make the ledger know of what was deployed."""
    return register_escrow(register_token(TOKEN_CODE, chain_id, token), escrow, deployed_block=block)
