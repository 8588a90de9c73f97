"""Searching a chain's events at endpoints that look through few blocks at once."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.client.errors import ChainFailed
from jobs.client.wallet import chain_reader
from jobs.client.wallet.chain_reader import ChainReader

HEAD = 1_000_000
TOPIC = "0x" + "00" * 32
EVENTS = (3, 70_000, 999_999)


class Endpoint(ChainReader):
    """Answers without a network; refuses a range of more than `span` blocks."""

    def __init__(self, span: int) -> None:
        self.span, self.queries = span, 0

    def ask(self, method: str, *params: Any) -> Any:
        if method == "eth_blockNumber":
            return hex(HEAD)
        self.queries += 1
        first, last = (int(params[0][name], 16) for name in ("fromBlock", "toBlock"))
        if last - first >= self.span:
            raise ChainFailed("too many blocks")
        return [{"blockNumber": number, "topics": [TOPIC]} for number in EVENTS if first <= number <= last]


def found(endpoint: Endpoint, **options: Any) -> list[int]:
    return [log["blockNumber"] for log in endpoint.logs("0x" + "11" * 20, [TOPIC], **options)]


@pytest.mark.parametrize("span", [HEAD + 1, HEAD, 10_000])
def test_every_event_is_found_once_and_in_order(span: int) -> None:
    assert found(Endpoint(span)) == list(EVENTS)


def test_a_search_has_an_end_and_says_what_to_do() -> None:
    endpoint = Endpoint(100)
    with pytest.raises(ChainFailed, match="--from-block"):
        found(endpoint)
    assert endpoint.queries == chain_reader.LOG_QUERIES_MAX
    assert found(Endpoint(100), first_block=HEAD - 1000) == [999_999]


def test_an_endpoint_that_refuses_a_single_block_is_not_asked_for_ever() -> None:
    with pytest.raises(ChainFailed, match="too many"):
        found(Endpoint(0))
