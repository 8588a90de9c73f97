"""Ethereum's signatures, by eth-account. It is loaded at the first use: its import would be a third of every start."""

from __future__ import annotations

import functools
import re
import sys
from types import ModuleType
from typing import Any, Final, NamedTuple

# r, s and v: 32 bytes, 32 bytes and one, which is 27 or 28.
SIGNATURE: Final = re.compile(r"(?:0x)?[0-9a-fA-F]{64}([0-9a-fA-F]{64})1[bcBC]")
CURVE_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141  # secp256k1's (SEC 2, 2.4.1)
KEY_FILE_MODULES: Final = ("eth_keyfile", "eth_keyfile.keyfile")


class TypedData(NamedTuple):
    """A message under EIP-712 (https://eips.ethereum.org/EIPS/eip-712)."""

    domain: dict[str, Any]
    types: dict[str, list[dict[str, str]]]
    message: dict[str, Any]


def address_of(private_key_hex: str) -> str:
    """The checksummed address of a secp256k1 key."""
    return str(_eth_account().Account.from_key(private_key_hex).address)


def sign_message(private_key_hex: str, message: bytes) -> str:
    """EIP-191 signature of bytes, 0x-hex."""
    return _sign(private_key_hex, _signable(message))


def sign_typed(private_key_hex: str, data: TypedData) -> str:
    """EIP-712 signature, 0x-hex."""
    return _sign(private_key_hex, _signable(data))


def recover_message(message: bytes, signature: str) -> str:
    """The address whose key signed these bytes; raises ValueError for what is no signature."""
    return _recover(message, signature)


def recover_typed(data: TypedData, signature: str, *, in_any_form: bool = False) -> str:
    """The address whose key signed; raises ValueError for what is no signature.

    `in_any_form` is for what was accepted before signatures had to have one form, and may not be changed.
    """
    return _recover(data, signature, in_any_form=in_any_form)


def typed_digest(data: TypedData) -> str:
    """EIP-712 digest, 0x-hex: what is signed."""
    from eth_utils.crypto import keccak

    signable = _signable(data)
    return "0x" + bytes(keccak(b"\x19" + signable.version + signable.header + signable.body)).hex()


def sign_transaction(private_key_hex: str, fields: dict[str, Any]) -> str:
    """A signed transaction (EIP-1559 fields, as JSON-RPC names them), its raw bytes as 0x-hex."""
    return "0x" + bytes(_eth_account().Account.sign_transaction(fields, private_key_hex).raw_transaction).hex()


def transaction_hash(raw: str) -> str:
    """The hash by which a chain knows these raw bytes."""
    from eth_utils.crypto import keccak

    return "0x" + bytes(keccak(bytes.fromhex(raw[2:]))).hex()


def preload() -> None:
    """Load the library now: a server does it before it reads anybody's request."""
    _eth_account()


@functools.cache
def _eth_account() -> ModuleType:
    # py_ecc, below eth_account, lets Python recurse 100,000 deep: deeper than the C stack, so that nested brackets from
    # anybody would kill the process that reads them. The limit goes back to what it was, and stays there.
    limit = sys.getrecursionlimit()
    import py_ecc  # noqa: F401 - the package alone; what is slow lies in its modules

    sys.setrecursionlimit(limit)
    # Those are loaded for encrypted key files, which nothing here reads or writes, and take as long as all the rest.
    # Whoever asks for eth_keyfile later gets the library itself.
    stand_ins = {} if "eth_keyfile" in sys.modules else {name: _NoKeyFiles(name) for name in KEY_FILE_MODULES}
    sys.modules.update(stand_ins)
    try:
        import eth_account
        import eth_account.messages
    finally:
        for name in stand_ins:
            sys.modules.pop(name, None)
    return eth_account


class _NoKeyFiles(ModuleType):
    """Has every public name, each a class that refuses to be called."""

    def __getattr__(self, name: str) -> type[_Refused]:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Refused


class _Refused:
    def __init__(self, *_given: object, **_named: object) -> None:
        raise NotImplementedError("encrypted key files are not read or written here")


def _signable(data: bytes | TypedData) -> Any:
    messages = _eth_account().messages
    if isinstance(data, bytes):
        return messages.encode_defunct(data)
    return messages.encode_typed_data(domain_data=data.domain, message_types=data.types, message_data=data.message)


def _sign(private_key_hex: str, signable: Any) -> str:
    signed = _eth_account().Account.sign_message(signable, private_key=private_key_hex)
    return "0x" + bytes(signed.signature).hex()


def _recover(data: bytes | TypedData, signature: str, *, in_any_form: bool = False) -> str:
    # One signature has one form, as the contract takes it (EIP-2): the library reads other last bytes as 27 or 28, by
    # chain, and takes the upper half of s, so that anybody could make a second signature of a first.
    form = SIGNATURE.fullmatch(signature)
    if not in_any_form and (form is None or int(form[1], 16) > CURVE_ORDER // 2):
        raise ValueError("not a valid signature: 65 bytes in hexadecimal, s in the lower half, the last byte 27 or 28")
    try:
        return str(_eth_account().Account.recover_message(_signable(data), signature=signature))
    except Exception as error:  # eth-keys raises several unrelated types for bytes that are no signature
        raise ValueError(f"not a valid signature: {error}") from error
