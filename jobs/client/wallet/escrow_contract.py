"""The escrow contract as anybody can read it: a wallet's money, a job's hold, a lease's account. No marketplace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from jobs.client.errors import ChainFailed
from jobs.client.wallet.chain_reader import ChainReader
from jobs.client.wallet.chain_wallet import encode_call
from provider_agent.protocol import ZERO_ADDRESS, ZERO_HASH, id_bytes32

HOLD_OPENED: Final = "HoldOpened(bytes32,address,uint256,uint256,bytes32,uint64,uint32)"
LEASE_SETTLED: Final = "LeaseSettled(bytes32,bytes32,address,address,uint64,uint256,uint64)"
SCALE_MAX: Final = 36
UUID_BYTES: Final = 16
CUSTOMER_TOPIC: Final = 2  # of HoldOpened
LEASE_TOPIC: Final = 2  # of LeaseSettled, whose first word of data is the customer
ADDRESS_CHARACTERS: Final = 40
WORD_CHARACTERS: Final = 66

_OTHER_EVENTS = "The chain's endpoint answers with other events than were asked for. Try another --rpc-url."
_WORDS = re.compile(r"0x([0-9a-fA-F]{64})+")
_PERIODS = ("challengeSeconds", "graceSeconds", "disputeSeconds", "closeSeconds")  # in the order of Terms
_SYMBOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,19}")


@dataclass(frozen=True)
class Terms:
    """What the contract was made with and keeps for ever; times in seconds."""

    token: str
    fee_bps: int
    challenge_seconds: int
    grace_seconds: int
    dispute_seconds: int
    close_seconds: int


@dataclass(frozen=True)
class HoldAccount:
    """Money that a customer reserved for one job; `remaining` is what no lease has settled yet."""

    customer: str
    opened_at: int  # unix seconds
    closes_at: int  # unix seconds, when the settler began to close it; 0: it did not
    parallel_leases: int
    deadline: int  # unix seconds
    is_closed: bool
    remaining: int
    rate_ceiling_per_hour: int
    providers_root: str

    def refundable_after(self, terms: Terms) -> int:
        """From the next second on anybody may refund it."""
        expires_at = self.deadline + terms.grace_seconds
        return min(expires_at, self.closes_at) if self.closes_at else expires_at

    @property
    def names_providers(self) -> bool:
        """Whether only providers that the customer named may be paid from it."""
        return self.providers_root != ZERO_HASH


@dataclass(frozen=True)
class LeaseAccount:
    """What one lease has settled so far, and what of it still waits."""

    lease_id: UUID
    job_id: UUID
    customer: str
    provider: str
    seq: int
    is_challenged: bool
    release_at: int  # unix seconds
    billable_ms: int
    settled: int
    pending: int

    def due_at(self, terms: Terms) -> int:
        """From when on anybody may finalize it."""
        return self.release_at + (terms.dispute_seconds if self.is_challenged else 0)


class EscrowContract:
    """One instance at one address; every figure is read anew. Raises ChainFailed where none is there."""

    def __init__(self, chain: ChainReader, address: str) -> None:
        self.chain, self.address = chain, address
        if not chain.has_code(address):
            raise ChainFailed(f"There is no contract at {address} on chain {chain.chain_id}.")
        try:
            numbers = [self._number(f"{name}()") for name in _PERIODS]
            self.terms = Terms(_checksummed(self._view("token()", "address")), self._number("feeBps()"), *numbers)
        except ChainFailed as error:
            raise ChainFailed(f"The contract at {address} is no escrow: {error.message}") from error

    def describe_token(self) -> tuple[str, int]:
        """The token's own symbol, or a word for it where that is none that could be shown; its decimals."""
        found = self.chain.read(self.terms.token, encode_call("decimals()", []))
        scale = int(_decode(found, "uint8"))
        if scale > SCALE_MAX:
            raise ChainFailed(f"The token {self.terms.token} has {scale} decimals: too many.")
        try:
            symbol = str(_decode(self.chain.read(self.terms.token, encode_call("symbol()", [])), "string"))
        except ChainFailed:
            symbol = ""  # an old token answers in another type, or not at all
        return (symbol if _SYMBOL.fullmatch(symbol) else "tokens"), scale

    def require_token(self, token: str, scale: int) -> None:
        """Raise ChainFailed unless this is the token that it holds, as a marketplace says."""
        found = self.describe_token()[1]
        if (token.lower(), scale) != (self.terms.token.lower(), found):
            raise ChainFailed(
                f"The contract's token is {self.terms.token} with {found} decimals, by this endpoint; the marketplace"
                f" says {token} with {scale}. Try another --rpc-url; else ask the marketplace."
            )

    def token_balance(self, wallet: str) -> int:
        """What the wallet has of the token outside of the contract."""
        return int(_decode(self.chain.read(self.terms.token, encode_call("balanceOf(address)", [wallet])), "uint256"))

    def available(self, wallet: str) -> int:
        """What the wallet may withdraw, or hold for a job."""
        return self._number("available(address)", wallet)

    def staked(self, wallet: str) -> int:
        """What can be slashed, what is leaving included."""
        return self._number("staked(address)", wallet)

    def unstaking(self, wallet: str) -> tuple[int, int]:
        """What of the stake is leaving, and from when on it can be taken."""
        amount, available_at = self._view("unstaking(address)", "uint256,uint64", wallet)
        return int(amount), int(available_at)

    def receipt_key_until(self, provider: str, key: str) -> int:
        """Until when a receipt key signs for a provider; 0 where it does not."""
        return self._number("receiptKeys(address,address)", provider, key)

    def hold(self, customer: str, job_id: UUID) -> HoldAccount | None:
        """A customer's hold for a job; None where none was opened."""
        kinds = "uint40,uint40,uint64,uint32,bool,uint72,uint256,uint256,bytes32"
        opened_at, closes_at, deadline, parallel, is_closed, _, remaining, rate, root = self._view(
            "holds(address,bytes32)", kinds, customer, id_bytes32(job_id)
        )
        if not opened_at:
            return None
        return HoldAccount(
            customer=_checksummed(customer),
            opened_at=opened_at,
            closes_at=closes_at,
            parallel_leases=parallel,
            deadline=deadline,
            is_closed=is_closed,
            remaining=remaining,
            rate_ceiling_per_hour=rate,
            providers_root="0x" + root.hex(),
        )

    def lease(self, customer: str, lease_id: UUID) -> LeaseAccount | None:
        """The account of a customer's lease; None where nothing was settled for it."""
        kinds = "bytes32,address,uint64,bool,uint64,uint64,uint256,uint256"
        job, provider, seq, is_challenged, release_at, ms, settled, pending = self._view(
            "leases(address,bytes32)", kinds, customer, id_bytes32(lease_id)
        )
        if provider == ZERO_ADDRESS:
            return None
        job_id = UUID(bytes=job[-UUID_BYTES:])
        return LeaseAccount(
            lease_id=lease_id,
            job_id=job_id,
            customer=_checksummed(customer),
            provider=_checksummed(provider),
            seq=seq,
            is_challenged=is_challenged,
            release_at=release_at,
            billable_ms=ms,
            settled=settled,
            pending=pending,
        )

    def holds_of_job(self, job_id: UUID, *, first_block: int = 0) -> list[HoldAccount]:
        """The hold of each customer who ever had one for a job of this id; of an honest job's one."""
        logs = self.chain.logs(self.address, [_topic(HOLD_OPENED), _id_topic(job_id)], first_block=first_block)
        customers = dict.fromkeys(_address_of(log["topics"][CUSTOMER_TOPIC]) for log in _complete(logs, CUSTOMER_TOPIC))
        found = [self.hold(customer, job_id) for customer in customers]
        return [hold for hold in found if hold is not None]

    def leases_of_job(self, customer: str, job_id: UUID, *, first_block: int = 0) -> list[LeaseAccount]:
        """Every lease that was settled under the customer's hold for the job, in the order of their first receipts."""
        found = self._leases([_topic(LEASE_SETTLED), _id_topic(job_id)], first_block)
        return [lease for lease in found if lease.customer.lower() == customer.lower()]

    def leases_of_id(self, lease_id: UUID, *, first_block: int = 0) -> list[LeaseAccount]:
        """The lease of each customer under whose hold this id was settled; of an honest lease's one."""
        return self._leases([_topic(LEASE_SETTLED), None, _id_topic(lease_id)], first_block)

    def leases_of_provider(self, wallet: str, *, first_block: int = 0) -> list[LeaseAccount]:
        """Every lease that was settled for the provider, in the order of their first receipts."""
        return self._leases([_topic(LEASE_SETTLED), None, None, _address_topic(wallet)], first_block)

    def holds_of_customer(self, wallet: str, *, first_block: int = 0) -> list[tuple[UUID, HoldAccount]]:
        """Every hold that the wallet ever had, oldest first."""
        logs = self.chain.logs(
            self.address, [_topic(HOLD_OPENED), None, _address_topic(wallet)], first_block=first_block
        )
        found = [(job_id, self.hold(wallet, job_id)) for job_id in _ids(logs, topic=1)]
        return [(job_id, hold) for job_id, hold in found if hold is not None]

    def _leases(self, topics: Sequence[str | None], first_block: int) -> list[LeaseAccount]:
        logs = self.chain.logs(self.address, topics, first_block=first_block)
        named = dict.fromkeys(
            (_address_of(_data(log)[:WORD_CHARACTERS]), lease_id)
            for log in _complete(logs, LEASE_TOPIC)
            for lease_id in _ids([log], topic=LEASE_TOPIC)
        )
        found = [self.lease(customer, lease_id) for customer, lease_id in named]
        return [lease for lease in found if lease is not None]

    def _number(self, view: str, *arguments: Any) -> int:
        return int(self._view(view, "uint256", *arguments))

    def _view(self, view: str, kinds: str, *arguments: Any) -> Any:
        return _decode(self.chain.read(self.address, encode_call(view, arguments)), kinds)


def at(seconds: int) -> datetime:
    """A time of the chain; the latest that can be written where it lies beyond."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.max.replace(tzinfo=UTC)


def _decode(data: bytes, kinds: str) -> Any:
    """The one value, or all of them; raises ChainFailed for what is none."""
    from eth_abi.abi import decode
    from eth_abi.exceptions import DecodingError

    try:
        found = decode(kinds.split(","), data)
    except (DecodingError, UnicodeDecodeError, OverflowError) as error:
        raise ChainFailed("it answers in another way than an escrow contract and its token do.") from error
    return found if "," in kinds else found[0]


def _checksummed(address: str) -> str:
    from eth_utils.address import to_checksum_address

    return str(to_checksum_address(address))


def _topic(event: str) -> str:
    from eth_utils.crypto import keccak

    return "0x" + bytes(keccak(event.encode())).hex()


def _address_topic(address: str) -> str:
    return "0x" + "00" * 12 + address[2:].lower()


def _id_topic(one: UUID) -> str:
    return "0x" + id_bytes32(one).hex()


def _address_of(word: str) -> str:
    return _checksummed("0x" + word[-ADDRESS_CHARACTERS:])


def _data(log: dict[str, Any]) -> str:
    """The event's data; raises ChainFailed where it has not one word of it."""
    data = log.get("data")
    if not isinstance(data, str) or not _WORDS.fullmatch(data):
        raise ChainFailed(_OTHER_EVENTS)
    return data


def _complete(logs: Sequence[dict[str, Any]], topic: int) -> Sequence[dict[str, Any]]:
    if any(len(log["topics"]) <= topic for log in logs):
        raise ChainFailed(_OTHER_EVENTS)
    return logs


def _ids(logs: Sequence[dict[str, Any]], *, topic: int) -> list[UUID]:
    """The ids at one place of the events, each once; raises ChainFailed where an event has no such place."""
    words = dict.fromkeys(bytes.fromhex(log["topics"][topic][2:]) for log in _complete(logs, topic))
    return [UUID(bytes=word[-UUID_BYTES:]) for word in words if not any(word[:-UUID_BYTES])]
