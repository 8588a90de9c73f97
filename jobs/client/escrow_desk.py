"""What the commands of `souk escrow` share: which contract, by which endpoint, and one call of it, asked and told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import typer

from jobs.client.errors import ChainFailed, NotSignedIn, ServerUnreachable, UsageMistake
from jobs.client.options import ask, find_job, open_souk

if TYPE_CHECKING:
    from jobs.client.known_contracts import KnownContract

ALL: Final = "all"

Asset = Annotated[
    str, typer.Option("--asset", help="The token, such as USDC; its contract is the one that the marketplace names.")
]
Contract = Annotated[
    str, typer.Option("--contract", help="The escrow contract's address, in place of --asset: no marketplace is asked.")
]
ChainId = Annotated[
    int | None, typer.Option("--chain-id", min=1, help="With --contract: the chain that --rpc-url must be.")
]
RpcUrl = Annotated[
    str, typer.Option("--rpc-url", envvar="SOUK_RPC_URL", help="An endpoint of the chain, of your choice.")
]
KeyFile = Annotated[
    Path, typer.Option("--wallet-key-file", help="Your wallet's private key, 64 hex characters, mode 600.")
]
FromBlock = Annotated[
    int, typer.Option("--from-block", min=0, help="Search the chain's events from this block on; for slow endpoints.")
]
Job = Annotated[
    str, typer.Argument(metavar="JOB", help="A job's id; with a marketplace its name, too.", show_default=False)
]
Lease = Annotated[
    UUID,
    typer.Argument(metavar="LEASE", help="A lease's id; `souk escrow show JOB` lists them.", show_default=False),
]

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")


@dataclass(frozen=True)
class Place:
    """What was said about where the contract is."""

    asset: str
    contract: str
    chain_id: int | None
    rpc_url: str
    server: str | None


@dataclass(frozen=True)
class Done:
    """A call that is in a block; `is_earlier`: it was an interrupted command's, and nothing new was sent."""

    what: str
    mined: Any
    is_earlier: bool


class Desk:
    """One contract and, where something is to be sent, one wallet."""

    def __init__(self, chain: Any, contract: Any, code: str, scale: int) -> None:
        from jobs.client.chain_wallet import ChainWallet
        from jobs.client.sending import Sender

        self.chain, self.contract = chain, contract
        self.code, self.scale = code, scale
        self.sender = Sender(chain) if isinstance(chain, ChainWallet) else None
        self.wallet: str = chain.wallet.address if self.sender else ""

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

    def call(self, signature: str, arguments: Sequence[Any], *, what: str, yes: bool, as_json: bool) -> Done:
        """Try, ask, send and wait. Where this very call was interrupted earlier, that is finished and nothing is sent.

        Raises ChainFailed; typer.Abort for a no.
        """
        from jobs.client.chain_wallet import encode_call
        from jobs.client.output import notice

        assert self.sender is not None  # noqa: S101 - opened with a key
        call = encode_call(signature, arguments)
        if (earlier := self._earlier(call)) is not None:
            return earlier
        gas = self.chain.estimate(self.contract.address, call)
        self._ask(f"{what}? It takes about {gas:,} gas.", yes=yes, as_json=as_json)
        return Done(what, self.sender.send(self.contract.address, call, what=what, tell=notice), is_earlier=False)

    def pay_in(
        self, units: int, signature: str, arguments: Sequence[Any], *, what: str, yes: bool, as_json: bool
    ) -> Done:
        """The same for a call that takes tokens of the wallet, which it is allowed to before."""
        from jobs.client.depositing import pay_in
        from jobs.client.output import notice

        assert self.sender is not None  # noqa: S101 - opened with a key
        if (earlier := self.finish(signature)) is not None:
            return earlier
        self._ask(f"{what}? It takes one transaction or two.", yes=yes, as_json=as_json)
        places = (self.contract.terms.token, self.contract.address)
        mined = pay_in(self.sender, places, units, call=(signature, arguments), what=what, tell=notice)
        return Done(what, mined, is_earlier=False)

    def finish(self, signature: str, arguments: Sequence[Any] | None = None) -> Done | None:
        """What was interrupted, brought to its end; None unless it was a call of this function (with this argument).

        Of calls about an amount any counts: who meant 3 and now says 5 has not asked for 8.
        """
        from jobs.client.chain_wallet import encode_call, selector

        return self._earlier(selector(signature) if arguments is None else encode_call(signature, arguments))

    def _earlier(self, call: bytes) -> Done | None:
        from jobs.client.output import notice

        assert self.sender is not None  # noqa: S101 - opened with a key
        found = self.sender.finish_earlier(tell=notice)
        if found is None or not found[0].is_like(self.contract.address, call):
            return None
        return Done(found[0].what, found[1], is_earlier=True)

    def _ask(self, question: str, *, yes: bool, as_json: bool) -> None:
        where = f"Wallet {self.wallet}, contract {self.contract.address}, chain {self.chain.chain_id}."
        if not yes and not ask(f"{where}\n{question} Go on?", as_json=as_json):
            raise typer.Abort


@contextmanager
def open_desk(place: Place, key_file: Path | None = None) -> Iterator[Desk]:
    """The contract by the endpoint; what the marketplace says of it is compared with the chain. Raises ChainFailed."""
    from jobs.client.chain_wallet import ChainReader, ChainWallet
    from jobs.client.escrow_contract import EscrowContract
    from jobs.client.wallet import read_wallet

    address, known = _find(place)
    chain_id = known.chain_id if known else place.chain_id
    wallet = read_wallet(key_file) if key_file else None
    with (
        ChainWallet(place.rpc_url, wallet, chain_id=chain_id)
        if wallet
        else ChainReader(place.rpc_url, chain_id=chain_id)
    ) as chain:
        contract = EscrowContract(chain, address)
        symbol, scale = contract.describe_token()
        if known and (known.token.lower(), known.scale) != (contract.terms.token.lower(), scale):
            raise ChainFailed(
                f"The contract's token is {contract.terms.token} with {scale} decimals, by this endpoint; the"
                f" marketplace says {known.token} with {known.scale}. Try another --rpc-url; else ask the marketplace."
            )
        yield Desk(chain, contract, place.asset or symbol, scale)


def find_job_id(text: str, place: Place) -> UUID:
    """The job's id; its name where a marketplace can be asked."""
    try:
        return UUID(text)
    except ValueError:
        if place.contract:
            raise UsageMistake(f"{text!r} is no job's id; without a marketplace a name says nothing.") from None
    with open_souk(place.server) as souk:
        return find_job(souk, text)


def tell(done: Done, *, as_json: bool, more: dict[str, Any] | None = None, hint: str = "") -> None:
    """What was done, for people or as JSON."""
    from jobs.client.output import console, print_json

    if as_json:
        print_json({**done.mined.as_json(), "what": done.what, "is_earlier": done.is_earlier, **(more or {})})
        return
    lead = "An earlier command was finished, and nothing new was sent: " if done.is_earlier else ""
    console().print(
        f"{lead}{done.what}: done, in transaction {done.mined.tx_hash}, block {done.mined.block}.", markup=False
    )
    if hint:
        console().print(hint, markup=False)


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


def _find(place: Place) -> tuple[str, KnownContract | None]:
    """The contract's address; what the marketplace says, or said, of it where it was asked."""
    from jobs.client.known_contracts import known_contract, remember_contract
    from jobs.client.output import notice
    from jobs.client.settings import choose_server, load_settings

    if bool(place.asset) == bool(place.contract):
        raise UsageMistake("Which contract? Give --asset CODE, or --contract ADDRESS; not both.")
    if place.contract:
        return require_address(place.contract), None
    server = choose_server(place.server, load_settings())
    try:
        found = _ask_marketplace(place)
    except (ServerUnreachable, NotSignedIn) as error:
        known = known_contract(server, place.asset)
        if known is None:
            raise UsageMistake(f"{error.message} Without it, say --contract ADDRESS.") from error
        notice(f"{error.message} Going on with the contract that it named before.")
        return require_address(known.contract), known
    remember_contract(server, place.asset, found)
    return require_address(found.contract), found


def _ask_marketplace(place: Place) -> KnownContract:
    from jobs.client.known_contracts import KnownContract

    with open_souk(place.server) as souk:
        known = souk.assets()
    asset = next((each for each in known if each.code == place.asset), None)
    found = KnownContract.of(asset) if asset else None
    tokens = ", ".join(each.code for each in known if each.contract.strip("0x")) or "none"
    if found is None:
        raise UsageMistake(f"This marketplace has no escrow contract for {place.asset}; it has for: {tokens}.")
    return found
