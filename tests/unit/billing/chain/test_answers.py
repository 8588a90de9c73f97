"""What an endpoint may answer that no chain would, and that none of it is believed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from web3.exceptions import TransactionNotFound

from billing.chain.reading import builds
from billing.chain.reading.answers import NUMBER_MAX, TIME_MAX, Log, read_header, read_log, read_number, read_receipt

HASH, OTHER = b"\x01" * 32, b"\x02" * 32
BLOCK: dict[str, Any] = {"number": 7, "hash": HASH, "parentHash": OTHER, "timestamp": 1_790_000_000}
ENTRY: dict[str, Any] = {
    "blockNumber": 7,
    "logIndex": 0,
    "blockHash": HASH,
    "transactionHash": OTHER,
    "transactionIndex": 1,
    "address": "0x" + "ab" * 20,
    "topics": [HASH],
    "data": b"",
}
RECEIPT: dict[str, Any] = {
    "transactionHash": HASH,
    "blockNumber": 7,
    "blockHash": OTHER,
    "status": 1,
    "gasUsed": 21_000,
    "effectiveGasPrice": 3,
    "contractAddress": None,
}


def endpoint(answer: Any) -> Any:
    """A web3 whose endpoint answers this to every question for a receipt."""

    def find(_: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return SimpleNamespace(eth=SimpleNamespace(get_transaction_receipt=find))


def receipt(**changes: Any) -> Any:
    return read_receipt(endpoint(RECEIPT | changes), "0x" + HASH.hex())


def test_a_header_is_of_the_block_that_was_requested() -> None:
    assert read_header(BLOCK, 7).parent_hash == "0x" + OTHER.hex()
    with pytest.raises(ValueError, match="block 7 is not block 8"):
        read_header(BLOCK, 8)


@pytest.mark.parametrize("timestamp", [-1, TIME_MAX])
def test_a_block_of_no_time_of_ours_is_refused(timestamp: int) -> None:
    with pytest.raises(ValueError, match="was made at"):
        read_header(BLOCK | {"timestamp": timestamp}, 7)


@pytest.mark.parametrize("number", [-1, NUMBER_MAX + 1])
def test_a_block_number_that_no_column_holds_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="is no block's number"):
        read_number(number)
    with pytest.raises(ValueError, match="is no block's number"):
        receipt(blockNumber=number)


def test_a_log_that_was_removed_is_refused() -> None:
    assert read_log(ENTRY).tx_index == 1
    with pytest.raises(ValueError, match="a removed log"):
        read_log(ENTRY | {"removed": True})


def test_a_transaction_that_is_not_mined_has_no_receipt() -> None:
    assert read_receipt(endpoint(TransactionNotFound("none")), "0x" + HASH.hex()) is None


def test_a_receipt_of_another_transaction_is_refused() -> None:
    with pytest.raises(ValueError, match="a receipt of another transaction"):
        receipt(transactionHash=OTHER)


@pytest.mark.parametrize(("l1_fee", "cost"), [(None, 63_000), ("0x10", 63_016), (5, 63_005)])
def test_a_rollups_fee_is_part_of_the_cost(l1_fee: Any, cost: int) -> None:
    found = receipt(l1Fee=l1_fee)
    assert (found.cost, found.is_success, found.contract) == (cost, True, "")


def test_a_negative_fee_is_refused() -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        receipt(l1Fee="-0x1")


def test_a_log_of_no_event_of_ours_is_left_alone() -> None:
    nameless = Log(7, 0, "0x", "0x", 0, "0x" + "ab" * 20, (), b"")
    unknown = Log(7, 0, "0x", "0x", 0, "0x" + "ab" * 20, (HASH,), b"")
    assert [builds.decode_log(builds.ESCROW, log) for log in (nameless, unknown)] == [None, None]


def test_other_code_is_not_ours_whatever_its_constructor_filled_in() -> None:
    build = builds.load(builds.ESCROW)
    code = bytes.fromhex(build.deployed_bytecode.removeprefix("0x"))
    assert build.is_deployed_as(code)
    assert not build.is_deployed_as(code[:-1])
    assert not build.is_deployed_as(code[:-1] + bytes([code[-1] ^ 1]))
    twice = next(places for places in build.immutables.values() if len(places) > 1)
    filled = bytearray(code)
    for place in twice:
        filled[place["start"] : place["start"] + place["length"]] = b"\x07" * place["length"]
    assert build.is_deployed_as(bytes(filled))
    filled[twice[0]["start"]] = 8
    assert not build.is_deployed_as(bytes(filled)), "one value in one place and another in the other"
