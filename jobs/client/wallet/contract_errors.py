"""Why a contract refused a call, in words: its errors by their selectors. A test compares with the committed build."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

SELECTOR: Final = 4  # bytes
TEXT_CHARACTERS_MAX: Final = 200

SENTENCES: Final = {
    # the escrow's own
    "BadProof()": "the provider is not one of those that the hold allows.",
    "BadSignature()": "the signature is not that of the wallet that it is claimed to come from.",
    "Disputed()": "the lease is challenged, and the arbiter may still decide.",
    "ExceedsCap()": "it is more than one offence allows.",
    "ExceedsCredits()": "it is more than customers' credits cover.",
    "ExceedsDailyCap()": "it is more than a day allows.",
    "ExceedsHold()": "the hold has less left than that.",
    "ExceedsRate()": "it is more than the hold's rate allows for the time.",
    "ExceedsTime()": "it bills more time than has passed since the hold was opened.",
    "ExceedsStake()": "it is more than is staked.",
    "FeeTooHigh()": "the fee is above what any instance may take.",
    "HoldExists()": "this wallet has had a hold for this job already.",
    "HoldIsClosed()": "the job's hold is closed: what was left of it is in the customer's balance already.",
    "HoldIsClosing()": "the job's hold is being closed already.",
    "InsufficientAvailable()": "less than that is available to the wallet in the contract.",
    "NonceUsed()": "this signature was used or cancelled already.",
    "NotAllowed()": "this wallet, or the address named, may not do that.",
    "NotDisputed()": "the lease was not challenged.",
    "NothingToClaim()": "everything that was promised was claimed already.",
    "OffenceKnown()": "this offence was punished already.",
    "PeriodTooLong()": "the time is further away than the contract allows (366 days).",
    "RootPending()": "the proposed root is not open yet.",
    "StaleReceipt()": "a receipt as new as this one was settled already.",
    "SumMismatch()": "the parts do not add up.",
    "TooEarly()": "the time for it has not come.",
    "TooLate()": "the time for it has passed.",
    "UnexpectedBalance()": "the token moved another amount than it was asked to.",
    "UnknownHold()": "this wallet has no hold for this job.",
    "UnknownLease()": "nothing was settled for this lease under this wallet's hold.",
    "WrongAsset()": "it is about another token than this contract's.",
    "WrongProvider()": "this wallet is not the provider of the lease.",
    "ZeroAmount()": "there is nothing to move.",
    # OpenZeppelin's, below it
    "AccessControlBadConfirmation()": "a role can be given up only by its holder.",
    "AccessControlEnforcedDefaultAdminDelay(uint48)": "the change of the admin waits its delay.",
    "AccessControlEnforcedDefaultAdminRules()": "the admin's role changes hands in two steps only.",
    "AccessControlInvalidDefaultAdmin(address)": "this address may not become the admin.",
    "AccessControlUnauthorizedAccount(address,bytes32)": "this wallet has not the role for that.",
    "ECDSAInvalidSignature()": "it is no signature.",
    "ECDSAInvalidSignatureLength(uint256)": "the signature is not 65 bytes long.",
    "ECDSAInvalidSignatureS(bytes32)": "the signature is not in its one valid form.",
    "EnforcedPause()": "the contract is paused: no money comes in and no hold is opened; what goes out does not stop.",
    "ExpectedPause()": "the contract is not paused.",
    "InvalidShortString()": "a name is damaged.",
    "ReentrancyGuardReentrantCall()": "the token called back, which is not allowed.",
    "SafeCastOverflowedUintDowncast(uint8,uint256)": "a number is too large.",
    "SafeERC20FailedOperation(address)": "the token did not move.",
    "StringTooLong(string)": "a name is too long.",
    # tokens', ERC-6093
    "ERC20InsufficientAllowance(address,uint256,uint256)": "the escrow contract may not take that much of the token.",
    "ERC20InsufficientBalance(address,uint256,uint256)": "the wallet has less than that of the token.",
    "ERC20InvalidApprover(address)": "the token allows nothing from this address.",
    "ERC20InvalidReceiver(address)": "the token cannot be sent there.",
    "ERC20InvalidSender(address)": "the token cannot be sent from there.",
    "ERC20InvalidSpender(address)": "the token cannot be allowed to this address.",
}


@dataclass(frozen=True)
class Refusal:
    """`name` as in the contract's source, without arguments."""

    name: str
    sentence: str


def explain_refusal(data: str) -> Refusal | None:
    """What a call that reverted answered (0x-hex) means; None where it is no answer that we know."""
    try:
        answer = bytes.fromhex(data.removeprefix("0x"))
    except ValueError:
        return None
    signature = _by_selector().get(answer[:SELECTOR])
    if signature is None:
        return None
    if signature == "Error(string)":
        return Refusal("Error", _text(answer[SELECTOR:]))
    if signature == "Panic(uint256)":
        return Refusal("Panic", "a number went out of its range.")
    return Refusal(signature.partition("(")[0], SENTENCES[signature])


@functools.cache
def _by_selector() -> dict[bytes, str]:
    from eth_utils.crypto import keccak

    known = (*SENTENCES, "Error(string)", "Panic(uint256)")
    return {bytes(keccak(signature.encode()))[:SELECTOR]: signature for signature in known}


def _text(encoded: bytes) -> str:
    """An older contract's own words."""
    from eth_abi.abi import decode
    from eth_abi.exceptions import DecodingError

    try:
        (text,) = decode(["string"], encoded)
    except (DecodingError, UnicodeDecodeError, OverflowError):
        return "without a reason."
    return "".join(one if one.isprintable() else " " for one in str(text)[:TEXT_CHARACTERS_MAX])
