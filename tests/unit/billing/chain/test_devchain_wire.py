"""Calls to the development chain that are none, and how its answers are written."""

from __future__ import annotations

from typing import Any

import pytest

from billing.chain.devchain.chain import DevChain
from billing.chain.devchain.rpc import answer, serve
from billing.chain.devchain.wire import Data, Text, address_of, as_wire, message_of


@pytest.fixture(scope="module")
def chain() -> DevChain:
    return DevChain(None)


@pytest.mark.parametrize("request_", [7, "eth_chainId", None, {}, {"method": 7}])
def test_a_malformed_call_is_answered_as_invalid(chain: DevChain, request_: Any) -> None:
    assert answer(chain, request_)["error"]["code"] == -32600


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ({"method": "eth_mining"}, -32601),
        ({"method": "eth_getBalance", "params": []}, -32602),
        ({"method": "eth_getBalance", "params": ["0x12", "latest"]}, -32602),
        ({"method": "eth_getBlockByNumber", "params": ["soon", False]}, -32602),
    ],
)
def test_a_wrong_call_is_answered_with_its_code_and_id(chain: DevChain, call: dict[str, Any], code: int) -> None:
    found = answer(chain, {"id": 9, **call})
    assert (found["id"], found["error"]["code"]) == (9, code)


def test_the_development_chain_listens_on_loopback_only(chain: DevChain) -> None:
    with pytest.raises(ValueError, match="loopback only, not on 0"):
        serve(chain, host="0.0.0.0")


def test_numbers_and_bytes_are_written_in_hex_and_names_in_camel_case() -> None:
    value = {"block_number": 255, "logs": [b"\x01", Data()], "is_final": True, "next": None, "as_it_is": Text("soon")}
    assert as_wire(value) == {
        "blockNumber": "0xff",
        "logs": ["0x01", "0x"],
        "isFinal": True,
        "next": None,
        "asItIs": "soon",
    }


def test_a_call_without_fields_is_one_of_nobody_to_nobody() -> None:
    assert message_of({}) == {"from": bytes(20), "to": b"", "value": 0, "gas": 0, "data": b""}
    full = message_of({"from": "0x" + "11" * 20, "to": "0x" + "22" * 20, "value": "0x5", "gas": 9, "input": "0x01"})
    assert full == {"from": b"\x11" * 20, "to": b"\x22" * 20, "value": 5, "gas": 9, "data": b"\x01"}


def test_an_address_has_twenty_bytes() -> None:
    with pytest.raises(ValueError, match="is no address"):
        address_of("0x1234")
