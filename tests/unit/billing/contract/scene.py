"""An escrow with everybody in it: Alice and Anna buy, Bob and Ben provide, Mallory lies, each role has a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

import pytest
from eth_account import Account
from eth_account.signers.local import LocalAccount
from hypothesis import HealthCheck, settings
from web3 import Web3
from web3.contract import Contract

from provider_agent.protocol.money.receipts import ReceiptDomain, UsageReceipt, id_bytes32, sign_receipt
from tests.unit.billing.contract import merkle
from tests.unit.billing.contract.chain import ROLES, Chain, Event, Refused, address, wallet

ZERO = "0x" + "00" * 20
HOUR_MS = 3_600_000
HOUR, DAY = 3_600, 86_400
UNLIMITED = 2**256 - 1
FUNDS = 1_000_000_000
QUICK = settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
EVIDENCE = b"\xee" * 32

HOLD_TYPES = {
    "HoldAuthorization": [
        {"name": "jobId", "type": "bytes32"},
        {"name": "customer", "type": "address"},
        {"name": "asset", "type": "address"},
        {"name": "maxAmount", "type": "uint256"},
        {"name": "rateCeilingPerHour", "type": "uint256"},
        {"name": "parallelLeases", "type": "uint32"},
        {"name": "providersRoot", "type": "bytes32"},
        {"name": "deadline", "type": "uint64"},
        {"name": "nonce", "type": "uint256"},
    ]
}
DELEGATION_TYPES = {
    "ReceiptKeyDelegation": [
        {"name": "provider", "type": "address"},
        {"name": "receiptKey", "type": "address"},
        {"name": "notAfter", "type": "uint64"},
        {"name": "nonce", "type": "uint256"},
    ]
}
PERMIT_TYPES = {
    "Permit": [
        {"name": "owner", "type": "address"},
        {"name": "spender", "type": "address"},
        {"name": "value", "type": "uint256"},
        {"name": "nonce", "type": "uint256"},
        {"name": "deadline", "type": "uint256"},
    ]
}


class Terms(NamedTuple):
    """What an escrow is deployed with, in the order of the contract's struct."""

    token: str = ZERO
    admin: str = address("admin")
    fee_recipient: str = address("fee")
    fee_bps: int = 500
    challenge_seconds: int = HOUR
    grace_seconds: int = 600
    dispute_seconds: int = 2 * HOUR
    close_seconds: int = 0
    root_delay_seconds: int = HOUR
    root_daily_cap: int = 10_000_000
    unstake_seconds: int = 7 * DAY
    slash_cap_per_offence: int = 1_000
    slash_daily_cap: int = 1_500


TERMS = Terms()
HOLDERS = tuple(address(role) for role in ROLES)  # in the order of the contract's struct
HOLD_OPENED, HOLD_CLOSES, HOLD_DEADLINE, HOLD_REMAINING = 0, 1, 2, 6  # fields of the contract's Hold
HOURS_HELD = 10  # a hold of 10,000 at 1,000 an hour can be billed whole


class Signed(NamedTuple):
    """A message in the contract's form, and the signature over it."""

    message: tuple[Any, ...]
    signature: bytes


def job_id(name: str) -> UUID:
    """The id of a job or a lease by its name."""
    return uuid5(NAMESPACE_URL, name)


def id32(name: str) -> bytes:
    """The same as the contract knows it."""
    return id_bytes32(job_id(name))


def role_id(role: str) -> bytes:
    """The id of a role by its name here."""
    return bytes(Web3.keccak(text=role.upper()))


def receipt_key(provider: str) -> LocalAccount:
    """The receipt key on a provider's node."""
    made: LocalAccount = Account.from_key(Web3.keccak(text=f"souk receipt key of {provider}"))
    return made


@dataclass(frozen=True)
class Scene:
    """One escrow on a chain; what it signs is for this escrow unless `domain` says otherwise."""

    chain: Chain
    token: Contract
    escrow: Contract
    terms: Terms

    @classmethod
    def make(cls, chain: Chain, token: str = "DevToken", **terms: Any) -> Scene:
        """Deploy a token and an escrow for it, fill the roles, give everybody money and the escrow an allowance."""
        coin = chain.deploy(token, *(("Dev", "DEV", 6) if token == "DevToken" else ()))
        given = TERMS._replace(token=coin.address, **terms)
        scene = cls(chain, coin, chain.deploy("GpuEscrow", tuple(given), HOLDERS), given)
        for name in ("alice", "anna", "bob", "ben", "mallory"):
            chain.do(coin, "admin", "mint", address(name), FUNDS)
            chain.do(coin, name, "approve", scene.escrow.address, UNLIMITED)
        return scene

    # --- calls

    def do(self, who: str, function: str, *args: Any) -> list[Event]:
        """A transaction to the escrow that must succeed; its events."""
        return self.chain.do(self.escrow, who, function, *args)

    def view(self, function: str, *args: Any) -> Any:
        """What the escrow answers."""
        return self.chain.view(self.escrow, function, *args)

    def refuses(self, error: str, who: str, function: str, *args: Any) -> None:
        """The escrow reverts with this error."""
        with pytest.raises(Refused) as refused:
            self.chain.call(self.escrow, who, function, *args)
        assert str(refused.value) == error, f"{function} by {who}: {refused.value}, not {error}"

    def balance(self, of: str) -> int:
        """Tokens that a name, or an address, holds."""
        return int(self.chain.view(self.token, "balanceOf", of if of.startswith("0x") else address(of)))

    def available(self, of: str) -> int:
        """What a name may withdraw."""
        return int(self.view("available", address(of)))

    def now(self) -> int:
        """The time of the next transaction's block."""
        return self.chain.next_time()

    # --- signatures

    def domain(self, **changes: Any) -> dict[str, Any]:
        """The EIP-712 domain of this escrow."""
        return {
            "name": "Souk",
            "version": "1",
            "chainId": self.chain.chain_id,
            "verifyingContract": self.escrow.address,
        } | changes

    def sign(self, signer: LocalAccount, types: Any, message: Any, **domain: Any) -> Signed:
        """Sign a typed message; the tuple has its fields in the contract's order."""
        made = signer.sign_typed_data(self.domain(**domain), types, message)
        return Signed(tuple(message.values()), bytes(made.signature))

    def authorize(self, customer: str = "alice", job: str = "job", signer: str = "", **changes: Any) -> Signed:
        """A customer's HoldAuthorization; `changes` may be fields of the message."""
        message = {
            "jobId": id32(job),
            "customer": address(customer),
            "asset": self.token.address,
            "maxAmount": 10_000,
            "rateCeilingPerHour": 1_000,
            "parallelLeases": 4,
            "providersRoot": bytes(32),
            "deadline": self.now() + DAY,
            "nonce": int.from_bytes(Web3.keccak(text=job)[:8], "big"),
        } | changes
        return self.sign(wallet(signer or customer), HOLD_TYPES, message)

    def delegate(self, provider: str = "bob", signer: str = "", **changes: Any) -> Signed:
        """A provider's delegation to its node's receipt key."""
        message = {
            "provider": address(provider),
            "receiptKey": receipt_key(provider).address,
            "notAfter": self.now() + 30 * DAY,
            "nonce": 7_000_001,
        } | changes
        return self.sign(wallet(signer or provider), DELEGATION_TYPES, message)

    def receipt(self, job: str = "job", lease: str = "lease", **changes: Any) -> Signed:
        """A node's receipt, signed by the agent's own code; `provider` and `customer` are names."""
        provider, customer = changes.pop("provider", "bob"), changes.pop("customer", "alice")
        signer = changes.pop("signer", None) or receipt_key(provider)
        domain = ReceiptDomain(
            chain_id=changes.pop("chain_id", self.chain.chain_id),
            verifying_contract=changes.pop("contract", self.escrow.address),
        )
        receipt = UsageReceipt(
            job_id=job_id(job),
            lease_id=job_id(lease),
            provider=address(provider),
            customer=address(customer),
            **({"asset": self.token.address, "seq": 1, "billable_ms": HOUR_MS, "cumulative_amount": 1_000} | changes),
        )
        signed = sign_receipt(signer.key.hex(), receipt, domain)
        return Signed(as_tuple(receipt), bytes.fromhex(signed.signature[2:]))

    def permit(self, owner: str, amount: int, deadline: int, nonce: int = 0) -> tuple[int, bytes, bytes]:
        """A permit of the development token for this escrow: v, r, s."""
        domain = {"name": "Dev", "version": "1", "verifyingContract": self.token.address}
        message = {
            "owner": address(owner),
            "spender": self.escrow.address,
            "value": amount,
            "nonce": nonce,
            "deadline": deadline,
        }
        raw = self.sign(wallet(owner), PERMIT_TYPES, message, **domain).signature
        return raw[64], raw[:32], raw[32:64]

    # --- sequences

    def open_hold(self, customer: str = "alice", job: str = "job", hours: int = HOURS_HELD, **changes: Any) -> None:
        """Money deposited by the customer, a hold opened on it by the settler, and hours passed that can be billed."""
        signed = self.authorize(customer, job, **changes)
        self.do(customer, "deposit", signed.message[3])
        self.do("settler", "openHold", *signed)
        self.pass_hours(hours)

    def elapsed_ms(self, customer: str = "alice", job: str = "job") -> int:
        """What a receipt in the next block may bill at most."""
        opened_at = int(self.view("holds", address(customer), id32(job))[HOLD_OPENED])
        return (self.now() - opened_at) * 1_000

    def pass_hours(self, hours: int) -> None:
        """The chain's clock goes on."""
        self.chain.at(self.now() + hours * HOUR)

    def register(self, provider: str = "bob", **changes: Any) -> None:
        """The provider's receipt key registered."""
        self.do("settler", "registerReceiptKey", *self.delegate(provider, **changes))

    def settle(self, *proof: bytes, **changes: Any) -> list[Event]:
        """A receipt settled."""
        return self.do("settler", "settleLease", *self.receipt(**changes), list(proof))

    def settled_lease(self) -> int:
        """Alice's hold, Bob's key, and 1,000 of it settled on his lease; when its window ends."""
        self.open_hold()
        self.register()
        [event] = self.settle()
        return int(event.args["releaseAt"])

    def buy_credits(self, amount: int, who: str = "alice") -> None:
        """Credits bought for an organisation."""
        self.do(who, "buyCredits", id32("organisation"), amount)

    def leaf(self, name: str, cumulative: int) -> bytes:
        """The payout leaf of a name."""
        return merkle.payout_leaf(
            self.chain.chain_id, self.escrow.address, self.token.address, address(name), cumulative
        )

    def publish(self, promised: dict[str, int], total: int | None = None) -> list[bytes]:
        """Propose a root of what names have been promised, and wait until it is open; its leaves."""
        leaves = [self.leaf(name, cumulative) for name, cumulative in promised.items()]
        self.do("publisher", "proposeRoot", merkle.root(leaves), sum(promised.values()) if total is None else total)
        self.chain.at(self.now() + self.terms.root_delay_seconds)
        return leaves

    def claim(self, leaves: list[bytes], name: str, cumulative: int, who: str = "mallory") -> list[Event]:
        """Claim for a name."""
        return self.do(who, "claim", address(name), cumulative, merkle.proof(leaves, self.leaf(name, cumulative)))

    def check_books(self) -> None:
        """What is owed is not more than what is there."""
        assert self.view("totalLiabilities") <= self.balance(self.escrow.address)


def as_tuple(receipt: UsageReceipt) -> tuple[Any, ...]:
    """A receipt in the contract's form."""
    return (
        id_bytes32(receipt.job_id),
        id_bytes32(receipt.lease_id),
        receipt.provider,
        receipt.customer,
        receipt.asset,
        receipt.seq,
        receipt.billable_ms,
        receipt.cumulative_amount,
        bytes.fromhex(receipt.meter_hash[2:]),
        bytes.fromhex(receipt.prev_digest[2:]),
    )


def only(events: list[Event], name: str) -> dict[str, Any]:
    """The arguments of the one event there is."""
    [event] = events
    assert event.name == name
    return event.args


def books(scene: Scene) -> list[int]:
    """Everything that the escrow owes, and what it has."""
    names = ("totalAvailable", "totalHeld", "totalPending", "totalStaked", "slashPool", "creditPool")
    return [*(scene.view(name) for name in names), scene.balance(scene.escrow.address)]
