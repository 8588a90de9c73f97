"""Options of every command of `souk escrow`: which contract, by which endpoint, with which key, and how to answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

import typer

from jobs.client.commands.options import FEE_COINS_MAX, Json, KeyFile, MaxFee, RpcUrl, Server, Yes

Asset = Annotated[
    str, typer.Option("--asset", help="The token, such as USDC; its contract is the one that the marketplace names.")
]
Contract = Annotated[
    str,
    typer.Option(
        "--contract", help="The escrow contract's address, in place of --asset: the marketplace is not asked."
    ),
]
ChainId = Annotated[
    int | None, typer.Option("--chain-id", min=1, help="With --contract: the chain that --rpc-url must be.")
]
FromBlock = Annotated[
    int, typer.Option("--from-block", min=0, help="Search the chain's events from this block on; for slow endpoints.")
]
Customer = Annotated[
    str, typer.Option("--customer", help="Wallet whose hold it is, where several have one of the same id.")
]
Amount = Annotated[str, typer.Argument(metavar="AMOUNT", help="Such as 25 or 2.50, in the token.")]
Job = Annotated[
    str, typer.Argument(metavar="JOB", help="A job's id; with a marketplace its name, too.", show_default=False)
]
Lease = Annotated[
    UUID,
    typer.Argument(metavar="LEASE", help="A lease's id; `souk escrow show JOB` lists them.", show_default=False),
]


@dataclass(frozen=True, kw_only=True)
class _Where:
    asset: Asset = ""
    contract: Contract = ""
    chain_id: ChainId = None
    rpc_url: RpcUrl


@dataclass(frozen=True, kw_only=True)
class _Key:
    wallet_key_file: KeyFile
    max_fee: MaxFee = FEE_COINS_MAX
    yes: Yes = False


@dataclass(frozen=True, kw_only=True)
class _Answer:
    server: Server = None
    as_json: Json = False


# Fields come in the order of the bases from the last to the first, and so do the options of `--help`.
@dataclass(frozen=True, kw_only=True)
class Reading(_Answer, _Where):
    """Options of a command that only reads."""


@dataclass(frozen=True, kw_only=True)
class Sending(_Answer, _Key, _Where):
    """Options of a command that sends a transaction."""
