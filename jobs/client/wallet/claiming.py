"""Takes a payout in tokens out of the escrow contract, once (see `sending`), by a call that is made here of its proof.

The marketplace's own ready-made call is never signed: it could be any call.
"""

from __future__ import annotations

import re
from typing import Final

from jobs.client.errors import TermsRefused
from jobs.client.wallet.chain_wallet import ChainWallet, encode_call, selector
from jobs.client.wallet.escrow_contract import EscrowContract
from jobs.client.wallet.key_file import Wallet
from jobs.client.wallet.sending import Mined, Notify, Sender
from jobs.wire import ProofView

CLAIM: Final = "claim(address,uint256,bytes32[])"
PROOF_WORDS_MAX: Final = 64

_WORD = re.compile(r"0x[0-9a-fA-F]{64}")


def claim(proof: ProofView, rpc_url: str, wallet: Wallet, *, fee_max: int, notify: Notify) -> tuple[Mined, bool]:
    """The transaction that pays what is promised to the proof's wallet, and whether an earlier command had sent it.

    Raises ChainFailed, SendingInterrupted, TermsRefused.
    """
    call = claim_call(proof)
    with ChainWallet(rpc_url, wallet, chain_id=proof.chain_id, fee_max=fee_max) as chain:
        contract = EscrowContract(chain, proof.contract)
        sender = Sender(chain)
        earlier = sender.finish_earlier(notify=notify)
        if earlier is not None and earlier[0].is_like(contract.address, selector(CLAIM)):
            return earlier[1], True
        return sender.send(contract.address, call, what=f"claim for {proof.wallet}", notify=notify), False


def claim_call(proof: ProofView) -> bytes:
    """The data of the call; raises TermsRefused for a proof that is none."""
    from eth_abi.exceptions import EncodingError

    try:
        if len(proof.proof) > PROOF_WORDS_MAX or not all(_WORD.fullmatch(word) for word in proof.proof):
            raise ValueError("its words are none")
        words = [bytes.fromhex(word[2:]) for word in proof.proof]
        return encode_call(CLAIM, [proof.wallet, proof.cumulative, words])
    except (EncodingError, ValueError) as error:
        raise TermsRefused("The marketplace's proof of the payout is none. Nothing was signed.") from error
