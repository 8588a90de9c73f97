"""One contract by one endpoint, for the commands of `souk escrow`: calls are simulated, confirmed, sent, reported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from uuid import UUID

import typer

from jobs.client.commands.escrow_options import Reading, Sending
from jobs.client.commands.options import ask, find_job, open_souk
from jobs.client.errors import ChainFailed, NotSignedIn, ServerUnreachable, UsageMistake

if TYPE_CHECKING:
    from jobs.client.wallet.escrow_contract import HoldAccount, LeaseAccount
    from jobs.client.wallet.known_contracts import KnownContract

ALL: Final = "all"
T = TypeVar("T", bound="HoldAccount | LeaseAccount")

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")


@dataclass(frozen=True)
class Done:
    """A call that is in a block; `is_earlier`: it was an interrupted command's, and nothing new was sent."""

    what: str
    mined: Any
    is_earlier: bool


class EscrowSession:
    """One contract and, where something is to be sent, one wallet."""

    def __init__(self, options: Reading | Sending, chain: Any, contract: Any, code: str, scale: int) -> None:
        from jobs.client.wallet.sending import Sender

        self.chain, self.contract = chain, contract
        self.code, self.scale = code, scale
        self._options = options
        self._sender = Sender(chain) if isinstance(options, Sending) else None
        self.wallet: str = chain.wallet.address if isinstance(options, Sending) else ""

    def show(self, units: int) -> str:
        """An amount as people write it."""
        from jobs.payment.terms import show_units

        return show_units(units, asset=self.code, scale=self.scale)

    def parse(self, amount: str) -> int:
        """Base units of what was written; raises UsageMistake."""
        from jobs.payment.terms import parse_units

        try:
            return parse_units(amount, scale=self.scale)
        except ValueError as error:
            raise UsageMistake(f"{amount!r} is no amount of {self.code}: {error}") from error

    def find_hold(self, job_id: UUID, customer: str, *, first_block: int = 0) -> HoldAccount | None:
        """The hold of a job, or of this customer for it; raises UsageMistake where several wallets have one."""
        if customer:
            return cast("HoldAccount | None", self.contract.hold(require_address(customer), job_id))
        return _only(self.contract.holds_of_job(job_id, first_block=first_block), f"holds for the job {job_id}")

    def find_lease(self, lease_id: UUID, customer: str, *, first_block: int = 0) -> LeaseAccount | None:
        """The same of a lease."""
        if customer:
            return cast("LeaseAccount | None", self.contract.lease(require_address(customer), lease_id))
        return _only(self.contract.leases_of_id(lease_id, first_block=first_block), f"leases {lease_id}")

    def call(self, signature: str, arguments: Sequence[Any], *, what: str) -> Done:
        """Try, ask, send and wait. Where this very call was interrupted earlier, that is finished and nothing is sent.

        Raises ChainFailed; typer.Abort for a no.
        """
        from jobs.client.output import notice
        from jobs.client.wallet.chain_wallet import encode_call

        call = encode_call(signature, arguments)
        if (earlier := self._earlier(call)) is not None:
            return earlier
        price = self.chain.price(self.contract.address, call)
        self._ask(f"{what}? It takes about {price.gas:,} gas, for at most {price.shown} of the chain's coins.")
        return Done(what, self.sender.send(self.contract.address, call, what=what, notify=notice), is_earlier=False)

    def pay_in(self, units: int, signature: str, *, what: str) -> Done:
        """The same for a call of one argument that takes so many tokens of the wallet, which it is allowed to before.

        Raises ChainFailed; typer.Abort for a no.
        """
        from jobs.client.output import notice
        from jobs.client.wallet.chain_wallet import show_coins
        from jobs.client.wallet.depositing import pay_in

        if (earlier := self.finish(signature)) is not None:
            return earlier
        most = show_coins(self.chain.fee_max)
        self._ask(f"{what}? It takes one transaction or two, each for at most {most} of the chain's coins.")
        places, call = (self.contract.terms.token, self.contract.address), (signature, [units])
        mined = pay_in(self.sender, places, units, call=call, what=what, notify=notice, show=self.show)
        return Done(what, mined, is_earlier=False)

    def finish(self, signature: str, arguments: Sequence[Any] | None = None) -> Done | None:
        """What was interrupted, brought to its end; None unless it was a call of this function (with this argument).

        Of calls about an amount any counts: an earlier call for 3 and a present one for 5 do not add up to 8.
        """
        from jobs.client.wallet.chain_wallet import encode_call, selector

        return self._earlier(selector(signature) if arguments is None else encode_call(signature, arguments))

    def report(self, done: Done, *, more: dict[str, Any] | None = None, hint: str = "") -> None:
        """What was done, for people or as JSON."""
        from jobs.client.output import console, print_json

        if self._options.as_json:
            print_json({**done.mined.as_json(), "what": done.what, "is_earlier": done.is_earlier, **(more or {})})
            return
        lead = "An earlier command was finished, and nothing new was sent: " if done.is_earlier else ""
        text = f"{lead}{done.what}: done, in transaction {done.mined.tx_hash}, block {done.mined.block}."
        console().print("\n".join(filter(None, (text, hint))), markup=False)

    @property
    def sender(self) -> Any:
        """What sends for the wallet."""
        assert self._sender is not None  # noqa: S101 - opened with a key
        return self._sender

    def _earlier(self, call: bytes) -> Done | None:
        from jobs.client.output import notice

        found = self.sender.finish_earlier(notify=notice)
        if found is None or not found[0].is_like(self.contract.address, call):
            return None
        return Done(found[0].what, found[1], is_earlier=True)

    def _ask(self, question: str) -> None:
        assert isinstance(self._options, Sending)  # noqa: S101 - opened with a key
        where = f"Wallet {self.wallet}, contract {self.contract.address}, chain {self.chain.chain_id}."
        if not self._options.yes and not ask(f"{where}\n{question} Go on?", as_json=self._options.as_json):
            raise typer.Abort


@contextmanager
def open_session(options: Reading | Sending) -> Iterator[EscrowSession]:
    """The contract by the endpoint; what the marketplace says of it is compared with the chain. Raises ChainFailed."""
    from jobs.client.wallet.escrow_contract import EscrowContract

    open_chain = _chain_opener(options)
    address, known = _find(options)
    with open_chain(known.chain_id if known else options.chain_id) as chain:
        contract = EscrowContract(chain, address)
        if known:
            contract.require_token(known.token, known.scale)
        symbol, scale = contract.describe_token()
        yield EscrowSession(options, chain, contract, options.asset or symbol, scale)


def find_job_id(text: str, options: Reading | Sending) -> UUID:
    """The job's id; its name where a marketplace can be asked."""
    try:
        return UUID(text)
    except ValueError:
        if options.contract:
            raise UsageMistake(f"{text!r} is no job's id; without a marketplace a name says nothing.") from None
    with open_souk(options.server) as souk:
        return find_job(souk, text)


def _only(found: list[T], what: str) -> T | None:
    if len(found) > 1:
        wallets = ", ".join(one.customer for one in found)
        raise UsageMistake(f"Several wallets have {what}: {wallets}. Say --customer ADDRESS.")
    return found[0] if found else None


def add_when(refused: ChainFailed, error: str, moment: datetime, what: str) -> None:
    """Say from when on it will go, where the contract said that it is too early."""
    if refused.details.get("error") == error:
        refused.message += f" {what} {moment:%Y-%m-%d %H:%M:%S} UTC."


def require_address(text: str) -> str:
    """An address in the form that it is compared and encoded in; raises UsageMistake."""
    from eth_utils.address import is_checksum_address, is_checksum_formatted_address, to_checksum_address

    if not _ADDRESS.fullmatch(text):
        raise UsageMistake(f"{text!r} is no address: 0x and 40 hex characters.")
    if is_checksum_formatted_address(text) and not is_checksum_address(text):
        raise UsageMistake(f"{text} is mistyped: its capital letters do not fit (EIP-55).")
    return str(to_checksum_address(text))


def _chain_opener(options: Reading | Sending) -> Any:
    """A function of a chain id; whatever is wrong with the key's file or the fee is found before it is called."""
    from jobs.client.wallet.chain_reader import ChainReader
    from jobs.client.wallet.chain_wallet import ChainWallet
    from jobs.client.wallet.key_file import read_wallet, require_fee

    if not isinstance(options, Sending):
        return lambda chain_id: ChainReader(options.rpc_url, chain_id=chain_id)
    wallet, fee_max = read_wallet(options.wallet_key_file), require_fee(options.max_fee)
    return lambda chain_id: ChainWallet(options.rpc_url, wallet, chain_id=chain_id, fee_max=fee_max)


def _find(options: Reading | Sending) -> tuple[str, KnownContract | None]:
    """The contract's address, and what the marketplace states, or stated before, about it where it was asked."""
    from jobs.client.output import notice
    from jobs.client.settings import choose_server, load_settings
    from jobs.client.wallet.known_contracts import known_contract, remember_contract

    if bool(options.asset) == bool(options.contract):
        raise UsageMistake("Which contract? Give --asset CODE, or --contract ADDRESS; not both.")
    if options.contract:
        return require_address(options.contract), None
    server = choose_server(options.server, load_settings())
    try:
        found = _ask_marketplace(options)
    except (ServerUnreachable, NotSignedIn) as error:
        known = known_contract(server, options.asset)
        if known is None:
            raise UsageMistake(f"{error.message} Without it, say --contract ADDRESS.") from error
        notice(f"{error.message} Going on with the contract that it named before.")
        return require_address(known.contract), known
    remember_contract(server, options.asset, found)
    return require_address(found.contract), found


def _ask_marketplace(options: Reading | Sending) -> KnownContract:
    from jobs.client.wallet.known_contracts import KnownContract

    with open_souk(options.server) as souk:
        known = souk.assets()
    asset = next((each for each in known if each.code == options.asset), None)
    found = KnownContract.of(asset) if asset else None
    tokens = ", ".join(each.code for each in known if each.contract.strip("0x")) or "none"
    if found is None:
        raise UsageMistake(f"This marketplace has no escrow contract for {options.asset}; it has for: {tokens}.")
    return found
