"""A chain by JSON-RPC, read with httpx alone. The endpoint is the user's choice (`--rpc-url`), and is not believed.

Whatever it answers is bounded in size and time, and of the kind that was asked for, or ChainFailed says so.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx

from jobs.client.errors import ChainFailed, ChainSilent
from jobs.client.transport import without_controls
from jobs.client.wallet.contract_errors import explain_refusal

READ_SECONDS: Final = 20.0  # between two pieces of an answer
ANSWER_SECONDS: Final = 60.0
ANSWER_BYTES_MAX: Final = 32 << 20
MESSAGE_CHARACTERS_MAX: Final = 300
LOG_QUERIES_MAX: Final = 256  # of one search; endpoints differ in how many blocks they look through at once
LOGS_MAX: Final = 5_000  # that one search finds

_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,64}")
_BYTES = re.compile(r"0x(?:[0-9a-fA-F]{2})*")


class ChainReader:
    """One chain by one endpoint, without a wallet; raises ChainFailed, which says what to do."""

    def __init__(self, rpc_url: str, *, chain_id: int | None = None) -> None:
        self._url = rpc_url
        self._http = httpx.Client(timeout=READ_SECONDS, follow_redirects=False)
        self._asked = 0
        self.chain_id = self.number("eth_chainId")
        if chain_id is not None and self.chain_id != chain_id:
            raise ChainFailed(
                f"The endpoint {place_of(rpc_url)} is chain {self.chain_id}, and the token is on chain {chain_id}."
                " Give an endpoint of that chain with --rpc-url."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def read(self, contract: str, call: bytes) -> bytes:
        """What a view answers."""
        found = self.ask("eth_call", {"to": contract, "data": "0x" + call.hex()}, "latest")
        return bytes.fromhex(_require(found, _BYTES, "eth_call")[2:])

    def has_code(self, address: str) -> bool:
        """Whether a contract is there."""
        return _require(self.ask("eth_getCode", address, "latest"), _BYTES, "eth_getCode") != "0x"

    def time(self) -> int:
        """The newest block's, in unix seconds: what contracts compare with."""
        return as_number(self.newest_block().get("timestamp"), "eth_getBlockByNumber")

    def newest_block(self) -> dict[str, Any]:
        """Without its transactions."""
        found = self.row("eth_getBlockByNumber", "latest", False)
        if found is None or "timestamp" not in found:
            raise _nonsense("eth_getBlockByNumber")
        return found

    def number(self, method: str, *params: Any) -> int:
        """The result of a call that is a number."""
        return as_number(self.ask(method, *params), method)

    def row(self, method: str, *params: Any) -> dict[str, Any] | None:
        """The result of a call that is an object, or nothing."""
        found = self.ask(method, *params)
        if found is not None and not isinstance(found, dict):
            raise _nonsense(method)
        return found

    def logs(self, contract: str, topics: Sequence[str | None], *, first_block: int = 0) -> list[dict[str, Any]]:
        """A contract's events from `first_block` on, oldest first; ranges that the endpoint refuses are halved."""
        last = self.number("eth_blockNumber")
        ranges, found = [(first_block, last)], list[dict[str, Any]]()
        for _ in range(LOG_QUERIES_MAX):
            if not ranges:
                return found
            first, until = ranges.pop()
            asked = {"address": contract, "topics": list(topics), "fromBlock": hex(first), "toBlock": hex(until)}
            try:
                found += _logs_of(self.ask("eth_getLogs", asked), len(topics))
            except ChainSilent:
                raise
            except ChainFailed:
                if first >= until:
                    raise
                middle = (first + until) // 2
                ranges += [(middle + 1, until), (first, middle)]
            if len(found) > LOGS_MAX:
                raise ChainFailed(
                    f"There are more than {LOGS_MAX} events: give --from-block, the block from which on to search."
                )
        raise ChainFailed(
            "The chain's endpoint looks through too few blocks at once to search them all: give --from-block, the"
            " block from which on to search, or another --rpc-url."
        )

    def ask(self, method: str, *params: Any) -> Any:
        """The result of one call; a contract's refusal is explained in words; `details` has its error's name.

        Raises ChainSilent where no answer came that could be read.
        """
        self._asked += 1
        body = {"jsonrpc": "2.0", "id": self._asked, "method": method, "params": list(params)}
        try:
            answer = self._post(body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _silent(f"does not answer ({type(error).__name__})") from error
        if not isinstance(answer, dict) or "error" in answer or "result" not in answer:
            raise _refusal(method, answer.get("error") if isinstance(answer, dict) else answer)
        return answer["result"]

    def _post(self, body: dict[str, Any]) -> Any:
        """The answer as JSON, unless it is too long or takes too long."""
        until, answer = time.monotonic() + ANSWER_SECONDS, bytearray()
        with self._http.stream("POST", self._url, json=body) as response:
            for piece in response.iter_bytes():
                answer += piece
                if len(answer) > ANSWER_BYTES_MAX:
                    raise _silent(f"answers with more than {ANSWER_BYTES_MAX} bytes")
                if time.monotonic() > until:
                    raise _silent(f"does not end its answer within {ANSWER_SECONDS:.0f} s")
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise _silent(f"answers HTTP {response.status_code}, without JSON") from error


def as_number(found: Any, method: str) -> int:
    """A number as JSON-RPC writes it; raises ChainFailed."""
    return int(_require(found, _NUMBER, method), 16)


def place_of(rpc_url: str) -> str:
    """The endpoint without its path, which often is a key."""
    return urlsplit(rpc_url).hostname or "that you gave"


def _logs_of(found: Any, topics: int) -> list[dict[str, Any]]:
    """Events with as many topics as were asked for, at least."""
    if not isinstance(found, list) or not all(_is_log(log, topics) for log in found):
        raise _silent("answers eth_getLogs with what are no events")
    return found


def _is_log(log: Any, topics: int) -> bool:
    words = log.get("topics") if isinstance(log, dict) else None
    if not isinstance(words, list) or len(words) < topics:
        return False
    return all(isinstance(word, str) and len(word) == 66 and _BYTES.fullmatch(word) for word in words)


def _require(found: Any, pattern: re.Pattern[str], method: str) -> str:
    if not isinstance(found, str) or not pattern.fullmatch(found):
        raise _nonsense(method)
    return found


def _nonsense(method: str) -> ChainFailed:
    return _silent(f"answers {method} with something else than was asked for")


def _silent(what: str) -> ChainSilent:
    return ChainSilent(f"The chain's endpoint {what}. Try another --rpc-url.")


def _refusal(method: str, answer: Any) -> ChainFailed:
    """What an endpoint's error says, in our words where a contract gave its reason."""
    about = answer if isinstance(answer, dict) else {"message": answer}
    data = about.get("data")
    if isinstance(data, dict):  # some nodes wrap it once more
        data = data.get("data") or data.get("result")
    refusal = explain_refusal(data) if isinstance(data, str) else None
    if refusal is not None:
        return ChainFailed(f"The contract refuses: {refusal.sentence}", {"error": refusal.name})
    text = str(without_controls(str(about.get("message", answer))))[:MESSAGE_CHARACTERS_MAX]
    return ChainFailed(f"The chain's endpoint refuses {method}: {text}")
