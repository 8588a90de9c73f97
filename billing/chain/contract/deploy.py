"""Puts the contracts on a chain and checks that what is there is what was built: code, terms and roles."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from billing.chain.errors import CallReverted, ContractRefused, EndpointsDisagree, EndpointsUnreachable, KeyInUse
from billing.chain.keys import SigningKey
from billing.chain.reading import builds
from billing.chain.reading.client import ChainClient, Receipt, client_of
from billing.models import EscrowContract, Signer
from provider_agent.protocol import ZERO_ADDRESS

WAIT_SECONDS_MAX: Final = 300
POLL_SECONDS: Final = 0.2
RESUMED_NONCES_MAX: Final = 16  # how far back a deployment that was cut off is looked for
RESUMED_PAGES_MAX: Final = 20
ROLES: Final = ("SETTLER", "PUBLISHER", "ARBITER", "SLASHER", "PAUSER")
HOUR: Final = 3_600
DAY: Final = 86_400


@dataclass(frozen=True)
class Terms:
    """What the constructor fixes for ever; amounts in base units, times in seconds."""

    token: str
    admin: str
    fee_recipient: str
    fee_bps: int
    root_daily_cap: int
    slash_cap_per_offence: int
    slash_daily_cap: int
    challenge_seconds: int = DAY
    grace_seconds: int = 3 * DAY
    dispute_seconds: int = 7 * DAY
    close_seconds: int = HOUR  # in which the close of a stolen settler is noticed and stopped; each customer waits it
    root_delay_seconds: int = 6 * HOUR
    unstake_seconds: int = 7 * DAY

    def as_arguments(self) -> tuple[Any, ...]:
        """In the order of the contract's struct."""
        return (
            self.token,
            self.admin,
            self.fee_recipient,
            self.fee_bps,
            self.challenge_seconds,
            self.grace_seconds,
            self.dispute_seconds,
            self.close_seconds,
            self.root_delay_seconds,
            self.root_daily_cap,
            self.unstake_seconds,
            self.slash_cap_per_offence,
            self.slash_daily_cap,
        )

    def as_views(self) -> dict[str, Any]:
        """What each view must answer."""
        return {
            "token": self.token,
            "defaultAdmin": self.admin,
            "feeRecipient": self.fee_recipient,
            "feeBps": self.fee_bps,
            "challengeSeconds": self.challenge_seconds,
            "graceSeconds": self.grace_seconds,
            "disputeSeconds": self.dispute_seconds,
            "closeSeconds": self.close_seconds,
            "rootDelaySeconds": self.root_delay_seconds,
            "rootDailyCap": self.root_daily_cap,
            "unstakeSeconds": self.unstake_seconds,
            "slashCapPerOffence": self.slash_cap_per_offence,
            "slashDailyCap": self.slash_daily_cap,
        }


def deploy_escrow(chain_id: int, key: SigningKey, terms: Terms, roles: dict[str, str]) -> Receipt:
    """Deploy GpuEscrow with its roles filled, and verify all; a repeat finds what was deployed and interrupted.

    `roles`: the address for each of ROLES; one that is left out has no holder. Any that comes later waits the
    contract's own delay. Raises KeyInUse, ContractRefused, CallReverted.
    """
    if Signer.objects.filter(address=key.address, chain_id=chain_id).exists():
        raise KeyInUse(address=key.address)
    client = client_of(chain_id)
    build = builds.load(builds.ESCROW)
    receipt = _find_begun(client, key, terms, roles)
    if receipt is None:
        holders = tuple(roles.get(role, ZERO_ADDRESS) for role in ROLES)
        data = build.bytecode + _encode_constructor(build, [terms.as_arguments(), holders])
        receipt = send(client, key, data=data, purpose="deploy GpuEscrow")
    problems = verify_escrow(chain_id, receipt.contract, terms, roles)
    if problems:
        raise ContractRefused(address=receipt.contract, why="; ".join(problems))
    return receipt


def deploy_dev_token(chain_id: int, key: SigningKey, *, name: str, symbol: str, decimals: int) -> Receipt:
    """A token that anybody can mint: for development only."""
    build = builds.load(builds.DEV_TOKEN)
    data = build.bytecode + _encode_constructor(build, [name, symbol, decimals])
    return send(client_of(chain_id), key, data=data, purpose="deploy DevToken")


def verify_escrow(
    chain_id: int, address: str, terms: Terms | None = None, roles: dict[str, str] | None = None
) -> list[str]:
    """What is wrong with a deployed contract, as text; nothing if it is the build with these terms and roles."""
    client = client_of(chain_id)
    build = builds.load(builds.ESCROW)
    code = client.code(address)
    if not build.is_deployed_as(code):
        return [f"the code at {address} ({len(code)} bytes) is not the build's ({build.source_sha256[:12]})"]
    at, problems = client.head(), []
    for view, expected in (terms.as_views() if terms else {}).items():
        found = client.read(address, build.abi, view, at=at)
        if str(found).lower() != str(expected).lower():
            problems.append(f"{view} is {found}, not {expected}")
    for role, holder in (roles or {}).items():
        if not client.read(address, build.abi, "hasRole", _role(role), holder, at=at):
            problems.append(f"{holder} is not {role}")
    return problems


def send(client: ChainClient, key: SigningKey, *, data: str, to: str = "", purpose: str) -> Receipt:
    """Send one transaction and wait for it: for a person at a terminal, who sees what happens.

    The marketplace's own transactions go through billing/chain/transactions/planning.py. Raises CallReverted.
    """
    message = {"from": key.address, "data": data} | ({"to": to} if to else {})
    gas = client.estimate(message, purpose=purpose)
    base_fee, priority_fee = client.fee_now()
    body = {
        "type": 2,
        "chainId": client.config.chain_id,
        "nonce": client.nonce(key.address),
        "value": 0,
        "gas": gas * 12 // 10 + 10_000,
        "maxFeePerGas": min(2 * base_fee + priority_fee, client.config.max_fee),
        "maxPriorityFeePerGas": min(priority_fee, client.config.max_fee),
        "data": data,
    }
    raw, tx_hash = key.sign(body | ({"to": to} if to else {}))
    client.broadcast(raw)
    receipt = _wait_for(client, tx_hash, purpose=purpose)
    if not receipt.is_success:
        raise CallReverted(purpose=purpose, why=f"{tx_hash} was mined and reverted")
    return receipt


def _find_begun(client: ChainClient, key: SigningKey, terms: Terms, roles: dict[str, str]) -> Receipt | None:
    """What this key deployed lately, just so, and nobody registered: that deployment was interrupted."""
    from eth_typing import HexAddress, HexStr
    from eth_utils.address import to_checksum_address
    from web3.types import Nonce
    from web3.utils.address import get_create_address

    nonce = client.nonce(key.address)
    for earlier in range(nonce - 1, max(-1, nonce - 1 - RESUMED_NONCES_MAX), -1):
        address = str(to_checksum_address(get_create_address(HexAddress(HexStr(key.address)), Nonce(earlier))))
        is_taken = EscrowContract.objects.filter(chain_id=client.config.chain_id, address=address).exists()
        if not is_taken and client.code(address) and not verify_escrow(client.config.chain_id, address, terms, roles):
            return _receipt_of_deployment(client, address)
    return None


def _receipt_of_deployment(client: ChainClient, address: str) -> Receipt | None:
    """The constructor logs its first admin; None where that was too long ago to be looked for."""
    last = client.head()
    for _ in range(RESUMED_PAGES_MAX):
        first = max(0, last - client.config.blocks_per_query + 1)
        logs = client.logs(first, last, [address])
        receipt = client.receipt(logs[0].tx_hash) if logs else None
        if receipt is not None and receipt.contract.lower() == address.lower():
            return receipt
        if first == 0:
            break
        last = first - 1
    return None


def _wait_for(client: ChainClient, tx_hash: str, *, purpose: str) -> Receipt:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            receipt = client.receipt(tx_hash)
        except (EndpointsDisagree, EndpointsUnreachable):  # one of them is a block behind, or busy
            receipt = None
        if receipt is not None:
            return receipt
        time.sleep(POLL_SECONDS)
    raise CallReverted(purpose=purpose, why=f"{tx_hash} was not mined within {WAIT_SECONDS_MAX} s")


def _encode_constructor(build: builds.Build, arguments: list[Any]) -> str:
    from web3 import Web3

    contract = Web3().eth.contract(abi=build.abi, bytecode=build.bytecode)
    data: str = contract.constructor(*arguments).data_in_transaction
    return data.removeprefix(build.bytecode if build.bytecode.startswith("0x") else "0x" + build.bytecode)


def _role(name: str) -> bytes:
    from eth_utils.crypto import keccak

    return bytes(keccak(name.encode()))
