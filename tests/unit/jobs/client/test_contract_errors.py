"""What a contract answers to a call that it refuses, in words."""

from __future__ import annotations

from typing import Any

import pytest
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from billing.chain.reading import builds
from jobs.client.wallet.chain_reader import _refusal
from jobs.client.wallet.contract_errors import SENTENCES, explain_refusal


def errors_of(name: str) -> set[str]:
    """The errors of a committed build, as their selectors are made."""
    entries: list[dict[str, Any]] = [entry for entry in builds.load(name).abi if entry["type"] == "error"]
    return {f"{one['name']}({','.join(given['type'] for given in one['inputs'])})" for one in entries}


def selector(signature: str) -> str:
    return "0x" + bytes(keccak(signature.encode()))[:4].hex()


def test_every_error_of_the_contract_and_its_token_has_a_sentence() -> None:
    token = {one for one in errors_of(builds.DEV_TOKEN) if one.startswith("ERC20")}
    assert errors_of(builds.ESCROW) | token <= set(SENTENCES)


def test_no_sentence_is_for_an_error_that_does_not_exist() -> None:
    known = errors_of(builds.ESCROW) | errors_of(builds.DEV_TOKEN)
    assert {one for one in SENTENCES if not one.startswith("ERC20")} <= known


@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: {"data": data}, lambda data: {"result": data}])
def test_a_refusal_is_found_wherever_a_node_puts_it(wrap: Any) -> None:
    failed = _refusal("eth_estimateGas", {"message": "execution reverted", "data": wrap(selector("TooEarly()"))})
    assert failed.message == "The contract refuses: the time for it has not come."
    assert failed.details == {"error": "TooEarly"}


def test_an_old_contracts_text_is_shown_without_control_characters() -> None:
    data = selector("Error(string)") + encode(["string"], ["too \x1b[31mpoor"]).hex()
    refusal = explain_refusal(data)
    assert refusal is not None
    assert refusal.sentence == "too  [31mpoor"


@pytest.mark.parametrize("data", ["0x", "0xzz", "0x1234", "0xdeadbeef", "nonsense"])
def test_what_says_nothing_is_not_guessed_at(data: str) -> None:
    assert explain_refusal(data) is None
    assert "refuses eth_call: boo" in _refusal("eth_call", {"message": "boo", "data": data}).message


@pytest.mark.parametrize("tail", ["", "00" * 5, "ff" * 64])
def test_a_broken_reason_is_no_traceback(tail: str) -> None:
    refusal = explain_refusal(selector("Error(string)") + tail)
    assert refusal is not None
    assert refusal.sentence == "without a reason."
