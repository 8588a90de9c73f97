"""A signature under Ethereum's rules has one form, so that nobody makes a second one of it."""

from __future__ import annotations

import pytest

from provider_agent.protocol import ethereum

KEY = "0x" + "4c" * 32
MESSAGE = b"two GPU hours"


@pytest.fixture
def signature() -> str:
    return ethereum.sign_message(KEY, MESSAGE)


def test_its_signer_is_found_with_and_without_0x(signature: str) -> None:
    signer = ethereum.address_of(KEY)
    assert ethereum.recover_message(MESSAGE, signature) == signer
    assert ethereum.recover_message(MESSAGE, signature.removeprefix("0x")) == signer


@pytest.mark.parametrize("added", [-27, 8, 10, 20, 0x20])
def test_another_last_byte_of_the_same_meaning_is_refused(signature: str, added: int) -> None:
    last = int(signature[-2:], 16) + added
    with pytest.raises(ValueError, match="not a valid signature"):
        ethereum.recover_message(MESSAGE, f"{signature[:-2]}{last:02x}")


def test_the_other_half_of_the_curve_is_refused(signature: str) -> None:
    r, s, v = signature[2:66], int(signature[66:130], 16), int(signature[130:], 16)
    mirrored = f"0x{r}{ethereum.CURVE_ORDER - s:064x}{55 - v:02x}"
    with pytest.raises(ValueError, match="not a valid signature"):
        ethereum.recover_message(MESSAGE, mirrored)


def test_what_was_stored_before_is_read_in_any_form() -> None:
    terms = {"Job": [{"name": "hours", "type": "uint256"}]}
    data = ethereum.TypedData({"name": "Souk", "version": "1", "chainId": 1}, terms, {"hours": 2})
    stored = ethereum.sign_typed(KEY, data)
    other = f"{stored[:-2]}{int(stored[-2:], 16) + 10:02x}"
    assert ethereum.recover_typed(data, other, in_any_form=True) == ethereum.address_of(KEY)
    with pytest.raises(ValueError, match="not a valid signature"):
        ethereum.recover_typed(data, other)


@pytest.mark.parametrize("text", ["", "0x", "0x" + "zz" * 65, "0x" + "00" * 64, "0x" + "00" * 66, "no signature"])
def test_what_is_no_signature_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a valid signature"):
        ethereum.recover_message(MESSAGE, text)
