"""Sends one wallet's transactions, each once: what was signed is kept in a file until the chain has it.

    1. sign     the raw bytes are stored before they are sent
    2. send     the same bytes, however often
    3. wait     until they are in a block
    4. forget   the file goes; so it does where the chain refused them, or another transaction took their place

Interrupted after step 1, `finish_earlier` sends the same bytes again, and nothing happens twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from jobs.client.errors import ChainFailed, SendingFailed, SendingInterrupted
from jobs.client.settings import settings_path, write_private
from jobs.client.wallet.chain_wallet import ChainWallet, SignedTransaction

MINED_SECONDS: Final = 600.0
COMPARED: Final = 36  # bytes of a call: the function, and its first argument

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Mined:
    """A transaction that is in a block, and did what it says."""

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


@dataclass(frozen=True)
class Kept:
    """A transaction in the file: `what` it does in words, and the call itself."""

    signed: SignedTransaction
    what: str
    contract: str
    call: bytes

    def is_like(self, contract: str, call: bytes) -> bool:
        """Whether it calls the same function of the same contract; of `call` what is given of the first argument."""
        return self.contract.lower() == contract.lower() and self.call.startswith(call[:COMPARED])


class Sender:
    """Sends one wallet's transactions on one chain, one at a time."""

    def __init__(self, chain: ChainWallet) -> None:
        self.chain = chain
        name = f"{chain.chain_id}-{chain.wallet.address.lower()}.json"
        self.pending = settings_path().parent / "transactions" / name

    def send(self, contract: str, call: bytes, *, what: str, notify: Notify) -> Mined:
        """Sign, keep, send, wait; raises ChainFailed, and SendingInterrupted at Ctrl-C."""
        kept = Kept(self.chain.sign(contract, call), what, contract, call)
        body = {
            "hash": kept.signed.hash,
            "raw": kept.signed.raw,
            "nonce": kept.signed.nonce,
            "what": what,
            "contract": contract,
            "call": "0x" + call.hex(),
        }
        try:
            write_private(self.pending, json.dumps(body), is_new=True)
        except FileExistsError:
            raise ChainFailed(
                f"Another command is sending for this wallet ({self.pending}): wait for its end. Nothing was sent."
            ) from None
        return self._bring(kept, notify)

    def finish_earlier(self, *, notify: Notify) -> tuple[Kept, Mined] | None:
        """Bring what an interrupted command had signed to its end; None where there is nothing to finish."""
        try:
            body = json.loads(self.pending.read_text())
            signed = SignedTransaction(body["hash"], body["raw"], int(body["nonce"]))
            kept = Kept(signed, str(body["what"]), body["contract"], bytes.fromhex(body["call"][2:]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ChainFailed(
                f"{self.pending} holds an earlier transaction and cannot be read ({error}). Look at the wallet's"
                " transactions, then remove the file."
            ) from error
        notify(f"an earlier command was interrupted: finishing {signed.hash} ({kept.what}) ...")
        if self.chain.is_superseded(signed):
            self._forget(kept)
            notify("another transaction of the wallet took its place: it is not sent again, and forgotten.")
            return None
        return kept, self._bring(kept, notify)

    def _bring(self, kept: Kept, notify: Notify) -> Mined:
        signed = kept.signed
        about = {"tx_hash": signed.hash, "chain_id": self.chain.chain_id, "kept_in": str(self.pending)}
        try:
            self.chain.send(signed)
            block = self.chain.wait(signed.hash, seconds=MINED_SECONDS, notify=notify)
        except ChainFailed as failed:
            if failed.details.get("is_mined"):  # it is over, and sending it again would change nothing
                self._forget(kept)
                raise
            raise SendingFailed(f"{failed.message} {_next_step(kept)}", failed.details | about) from failed
        except KeyboardInterrupt:
            raise SendingInterrupted(f"Interrupted. {_next_step(kept)}", about) from None
        self._forget(kept)
        return Mined(self.chain.chain_id, signed.hash, block)

    def _forget(self, kept: Kept) -> None:
        """Remove the file, unless it is of another command by now, which found this one and finished it too."""
        try:
            is_ours = json.loads(self.pending.read_text())["hash"] == kept.signed.hash
        except (OSError, ValueError, KeyError, TypeError):
            return
        if is_ours:
            self.pending.unlink(missing_ok=True)


def _next_step(kept: Kept) -> str:
    """What became of a transaction that is signed, and what to do."""
    return (
        f"Transaction {kept.signed.hash} ({kept.what}) is signed and kept, and may be in a block yet. The same command"
        " again, with this endpoint or another, finishes it and sends nothing twice."
    )
