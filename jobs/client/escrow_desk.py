"""One contract by one endpoint, as the commands of `souk escrow` use it: each call is tried, asked, sent and told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import typer

from jobs.client.errors import ChainFailed, NotSignedIn, ServerUnreachable, UsageMistake
from jobs.client.escrow_options import Reading, Sending
from jobs.client.options import ask, find_job, open_souk

if TYPE_CHECKING:
    from jobs.client.known_contracts import KnownContract

ALL: Final = "all"

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")


@dataclass(frozen=True)
class Done:
    """A call that is in a block; `is_earlier`: it was an interrupted command's, and nothing new was sent."""

    what: str
    mined: Any
    is_earlier: bool


class Desk:
    """One contract and, where something is to be sent, one wallet."""

    def __init__(self, way: Reading | Sending, chain: Any, contract: Any, code: str, scale: int) -> None:
        from jobs.client.sending import Sender

        self.chain, self.contract = chain, contract
        self.code, self.scale = code, scale
        self._way = way
        self._sender = Sender(chain) if isinstance(way, Sending) else None
        self.wallet: str = chain.wallet.address if isinstance(way, Sending) else ""

    def show(self, units: int) -> str:
        """An amount as people write it."""
        from jobs.payment import show_units

        return show_units(units, asset=self.code, scale=self.scale)

    def parse(self, amount: str) -> int:
        """Base units of what was written; raises UsageMistake."""
        from jobs.payment import parse_units

        try:
            return parse_units(amount, scale=self.scale)
        except ValueError as error:
            raise UsageMistake(f"{amount!r} is no amount of {self.code}: {error}") from error

    def call(self, signature: str, arguments: Sequence[Any], *, what: str) -> Done:
        """Try, ask, send and wait. Where this very call was interrupted earlier, that is finished and nothing is sent.

        Raises ChainFailed; typer.Abort for a no.
        """
        from jobs.client.chain_wallet import encode_call
        from jobs.client.output import notice

        call = encode_call(signature, arguments)
        if (earlier := self._earlier(call)) is not None:
            return earlier
        price = self.chain.price(self.contract.address, call)
        self._ask(f"{what}? It takes about {price.gas:,} gas, for at most {price.shown} of the chain's coins.")
        return Done(what, self.sender.send(self.contract.address, call, what=what, tell=notice), is_earlier=False)

    def pay_in(self, units: int, signature: str, *, what: str) -> Done:
        """The same for a call of one argument that takes so many tokens of the wallet, which it is allowed to before.

        Raises ChainFailed; typer.Abort for a no.
        """
        from jobs.client.chain_wallet import show_coins
        from jobs.client.depositing import pay_in
        from jobs.client.output import notice

        if (earlier := self.finish(signature)) is not None:
            return earlier
        most = show_coins(self.chain.fee_max)
        self._ask(f"{what}? It takes one transaction or two, each for at most {most} of the chain's coins.")
        places, call = (self.contract.terms.token, self.contract.address), (signature, [units])
        mined = pay_in(self.sender, places, units, call=call, what=what, tell=notice, show=self.show)
        return Done(what, mined, is_earlier=False)

    def finish(self, signature: str, arguments: Sequence[Any] | None = None) -> Done | None:
        """What was interrupted, brought to its end; None unless it was a call of this function (with this argument).

        Of calls about an amount any counts: who meant 3 and now says 5 has not asked for 8.
        """
        from jobs.client.chain_wallet import encode_call, selector

        return self._earlier(selector(signature) if arguments is None else encode_call(signature, arguments))

    def tell(self, done: Done, *, more: dict[str, Any] | None = None, hint: str = "") -> None:
        """What was done, for people or as JSON."""
        from jobs.client.output import console, print_json

        if self._way.as_json:
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

        found = self.sender.finish_earlier(tell=notice)
        if found is None or not found[0].is_like(self.contract.address, call):
            return None
        return Done(found[0].what, found[1], is_earlier=True)

    def _ask(self, question: str) -> None:
        assert isinstance(self._way, Sending)  # noqa: S101 - opened with a key
        where = f"Wallet {self.wallet}, contract {self.contract.address}, chain {self.chain.chain_id}."
        if not self._way.yes and not ask(f"{where}\n{question} Go on?", as_json=self._way.as_json):
            raise typer.Abort


@contextmanager
def open_desk(way: Reading | Sending) -> Iterator[Desk]:
    """The contract by the endpoint; what the marketplace says of it is compared with the chain. Raises ChainFailed."""
    from jobs.client.escrow_contract import EscrowContract

    open_chain = _chain_opener(way)
    address, known = _find(way)
    with open_chain(known.chain_id if known else way.chain_id) as chain:
        contract = EscrowContract(chain, address)
        if known:
            contract.require_token(known.token, known.scale)
        symbol, scale = contract.describe_token()
        yield Desk(way, chain, contract, way.asset or symbol, scale)


def find_job_id(text: str, way: Reading | Sending) -> UUID:
    """The job's id; its name where a marketplace can be asked."""
    try:
        return UUID(text)
    except ValueError:
        if way.contract:
            raise UsageMistake(f"{text!r} is no job's id; without a marketplace a name says nothing.") from None
    with open_souk(way.server) as souk:
        return find_job(souk, text)


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


def _chain_opener(way: Reading | Sending) -> Any:
    """A function of a chain id; whatever is wrong with the key's file or the fee is found before it is called."""
    from jobs.client.chain_reader import ChainReader
    from jobs.client.chain_wallet import ChainWallet
    from jobs.client.wallet import read_wallet, require_fee

    if not isinstance(way, Sending):
        return lambda chain_id: ChainReader(way.rpc_url, chain_id=chain_id)
    wallet, fee_max = read_wallet(way.wallet_key_file), require_fee(way.max_fee)
    return lambda chain_id: ChainWallet(way.rpc_url, wallet, chain_id=chain_id, fee_max=fee_max)


def _find(way: Reading | Sending) -> tuple[str, KnownContract | None]:
    """The contract's address; what the marketplace says, or said, of it where it was asked."""
    from jobs.client.known_contracts import known_contract, remember_contract
    from jobs.client.output import notice
    from jobs.client.settings import choose_server, load_settings

    if bool(way.asset) == bool(way.contract):
        raise UsageMistake("Which contract? Give --asset CODE, or --contract ADDRESS; not both.")
    if way.contract:
        return require_address(way.contract), None
    server = choose_server(way.server, load_settings())
    try:
        found = _ask_marketplace(way)
    except (ServerUnreachable, NotSignedIn) as error:
        known = known_contract(server, way.asset)
        if known is None:
            raise UsageMistake(f"{error.message} Without it, say --contract ADDRESS.") from error
        notice(f"{error.message} Going on with the contract that it named before.")
        return require_address(known.contract), known
    remember_contract(server, way.asset, found)
    return require_address(found.contract), found


def _ask_marketplace(way: Reading | Sending) -> KnownContract:
    from jobs.client.known_contracts import KnownContract

    with open_souk(way.server) as souk:
        known = souk.assets()
    asset = next((each for each in known if each.code == way.asset), None)
    found = KnownContract.of(asset) if asset else None
    tokens = ", ".join(each.code for each in known if each.contract.strip("0x")) or "none"
    if found is None:
        raise UsageMistake(f"This marketplace has no escrow contract for {way.asset}; it has for: {tokens}.")
    return found
