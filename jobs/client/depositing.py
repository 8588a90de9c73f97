"""Pays tokens into the escrow contract, once: what was signed is kept in a file until the chain has it.

    1. approve   the contract may take exactly this much, unless it may already
    2. sign      buyCredits; the raw bytes are stored before they are sent
    3. send      the same bytes, however often; wait until they are in a block
    4. forget    the file goes

Interrupted after step 2, `finish_earlier` sends the same bytes again, and nothing is paid twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from jobs.client.chain_wallet import ChainWallet, SignedTransaction, encode_call
from jobs.client.errors import ChainFailed
from jobs.client.settings import settings_path, write_private
from jobs.client.wallet import Wallet
from jobs.wire import AssetView

MINED_SECONDS: Final = 600.0
WORD: Final = 32  # bytes of one argument

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Paid:
    """A deposit that is in a block."""

    chain_id: int
    tx_hash: str
    block: int

    @property
    def reference(self) -> str:
        """How the marketplace's own record of it begins."""
        return f"{self.chain_id}:{self.tx_hash}:"

    def as_json(self) -> dict[str, Any]:
        """What `--json` says of it."""
        return {"chain_id": self.chain_id, "tx_hash": self.tx_hash, "block": self.block}


class Deposit:
    """One wallet's way into one token's escrow."""

    def __init__(self, rpc_url: str, wallet: Wallet, token: AssetView) -> None:
        assert token.chain_id is not None  # noqa: S101 - only tokens come here
        self.token = token
        self.wallet = wallet
        self.chain = ChainWallet(rpc_url, wallet, chain_id=token.chain_id)
        self.pending = settings_path().parent / "deposits" / f"{token.chain_id}-{wallet.address.lower()}.json"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.chain.close()

    def pay(self, account: bytes, units: int, *, tell: Tell) -> Paid:
        """Buy credits of `units` for the account of 32 bytes; raises ChainFailed."""
        have = self._read("balanceOf(address)", self.wallet.address)
        if have < units:
            raise ChainFailed(
                f"The wallet {self.wallet.address} has {have} base units of the token, and {units} are needed."
            )
        if self._read("allowance(address,address)", self.wallet.address, self.token.contract) < units:
            tell("allowing the escrow contract to take the amount ...")
            approval = encode_call("approve(address,uint256)", [self.token.contract, units])
            signed = self.chain.sign(self.token.token, approval)
            self.chain.send(signed)
            self.chain.wait(signed.hash, seconds=MINED_SECONDS, tell=tell)
        signed = self.chain.sign(self.token.contract, encode_call("buyCredits(bytes32,uint256)", [account, units]))
        write_private(self.pending, json.dumps({"hash": signed.hash, "raw": signed.raw}))
        return self._bring(signed, tell)

    def finish_earlier(self, *, tell: Tell) -> Paid | None:
        """Bring what an interrupted deposit had signed to its end; None where there is nothing to finish."""
        try:
            kept = json.loads(self.pending.read_text())
            signed = SignedTransaction(kept["hash"], kept["raw"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError) as error:
            raise ChainFailed(
                f"{self.pending} tells of an earlier deposit and cannot be read ({error}). Look at the wallet's"
                " transactions, then remove the file."
            ) from error
        tell(f"an earlier deposit was interrupted: finishing {signed.hash} ...")
        return self._bring(signed, tell)

    def _bring(self, signed: SignedTransaction, tell: Tell) -> Paid:
        self.chain.send(signed)
        block = self.chain.wait(signed.hash, seconds=MINED_SECONDS, tell=tell)
        self.pending.unlink(missing_ok=True)
        return Paid(self.chain.chain_id, signed.hash, block)

    def _read(self, view: str, *arguments: str) -> int:
        return int.from_bytes(self.chain.read(self.token.token, encode_call(view, arguments))[:WORD])
