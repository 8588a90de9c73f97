"""Every capability that the transformers engine declares holds; what it does not, it refuses instead of ignoring it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from runtimes.contract import SERVE_SOCKET, Capability
from tests.integration.runtimes.serve.replicas import Replica, SocketConnection, encode

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "The "}]


def chat(replica: Replica, **asked: Any) -> str:
    """The text of an answer."""
    status, answer = replica.ask(CHAT, {"model": "tiny", "messages": HELLO, "max_tokens": 8, **asked})
    assert status == 200, answer
    text: str = answer["choices"][0]["message"]["content"]
    return text


def complete(replica: Replica, prompt: str, **asked: Any) -> dict[str, Any]:
    """A greedy completion."""
    status, answer = replica.ask(COMPLETE, {"model": "tiny", "prompt": prompt, "temperature": 0, **asked})
    assert status == 200, answer
    return answer


def test_ready_says_what_a_gateway_must_know(replica: Replica) -> None:
    kinds = [event["event"] for event in replica.events()]
    assert kinds.index("loading") < kinds.index("started") < kinds.index("ready")
    (ready,) = replica.events("ready")
    assert ready["engine"] == "transformers"
    assert set(ready["capabilities"]) == {
        Capability.CHAT, Capability.COMPLETIONS, Capability.CONTINUES, Capability.STREAM_USAGE
    }  # fmt: skip
    assert (ready["context"], ready["vocabulary"], ready["dtype"]) == (256, 512, "float32")
    assert len(ready["weights_digest"]) == len(ready["tokenizer_digest"]) == 64


def test_socket_is_its_users_alone(replica: Replica) -> None:
    assert (replica.root / "serve.sock").stat().st_mode & 0o777 == 0o600
    assert (replica.root / ".engine").stat().st_mode & 0o777 == 0o700


def test_temperature_is_each_requests_own_within_one_batch(replica: Replica) -> None:
    greedy: list[str] = []
    drawn: list[str] = []
    asking = [
        threading.Thread(
            target=lambda temperature, texts: texts.append(chat(replica, temperature=temperature)), args=each
        )
        for each in [(0, greedy), (2, drawn)] * 4
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert len(set(greedy)) == 1
    assert len(set(drawn)) > 1


def test_stop_string_ends_an_answer_before_it(replica: Replica) -> None:
    whole = complete(replica, "The", max_tokens=12)["choices"][0]["text"]
    stop = whole[5:8]
    cut = complete(replica, "The", max_tokens=12, stop=stop)["choices"][0]
    assert cut["text"] == whole[: whole.index(stop)]
    assert cut["finish_reason"] == "stop"
    events = list(replica.stream(COMPLETE, {"prompt": "The", "max_tokens": 12, "temperature": 0, "stop": [stop]}))
    assert "".join(event["choices"][0]["text"] for event in events) == cut["text"]


def test_answer_is_continued_where_it_ended(replica: Replica) -> None:
    began = chat(replica, temperature=0, max_tokens=4)
    messages = [*HELLO, {"role": "assistant", "content": began}]
    continued = chat(
        replica, messages=messages, temperature=0, add_generation_prompt=False, continue_final_message=True
    )
    assert continued == complete(replica, "The " + began, max_tokens=8)["choices"][0]["text"]


def test_stream_reports_its_use_where_it_is_asked_for(replica: Replica) -> None:
    asked = {"messages": HELLO, "max_tokens": 5, "temperature": 0}
    silent = list(replica.stream(CHAT, asked))
    assert all("usage" not in event for event in silent)
    assert silent[-1]["choices"][0]["finish_reason"] == "length"
    *_, last = replica.stream(CHAT, asked | {"stream_options": {"include_usage": True}})
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"n": 2}, "unsupported_parameter"),
        ({"logprobs": True}, "unsupported_parameter"),
        ({"seed": 1}, "unsupported_parameter"),
        ({"presence_penalty": 1}, "unsupported_parameter"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "unsupported_parameter"),
        ({"response_format": {"type": "json_object"}}, "unsupported_parameter"),
        ({"max_tokens": 10_000}, "context_length_exceeded"),
        ({"max_tokens": 129}, "invalid_value"),
        ({"max_tokens": 0}, "invalid_value"),
        ({"temperature": 3}, "invalid_value"),
        ({"stop": [""]}, "invalid_value"),
        ({"messages": []}, "invalid_value"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]}, "invalid_value"),
        ({"continue_final_message": True}, "invalid_value"),
        ({"continue_final_message": True, "messages": ["assistant"]}, "invalid_value"),
        ({"messages": [{"role": "user", "content": "long " * 400}]}, "context_length_exceeded"),
    ],
)
def test_what_is_not_done_is_refused(replica: Replica, asked: dict[str, Any], code: str) -> None:
    status, answer = replica.ask(CHAT, {"model": "tiny", "messages": HELLO, **asked})
    assert (status, answer["error"]["code"]) == (400, code)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_refused(replica: Replica, body: bytes) -> None:
    status, answer = replica.ask(CHAT, body)
    assert (status, answer["error"]["code"]) == (400, "invalid_json")


@pytest.mark.parametrize(("method", "path"), [("POST", "/reset"), ("POST", "/load_model"), ("GET", "/facts")])
def test_engines_own_paths_are_not_reached_from_outside(replica: Replica, method: str, path: str) -> None:
    status, answer = replica.ask(path, {} if method == "POST" else None, method=method)
    assert (status, answer["error"]["code"]) == (404, "not_found")


def test_other_model_is_not_found(replica: Replica) -> None:
    status, answer = replica.ask(CHAT, {"model": "other", "messages": HELLO})
    assert (status, answer["error"]["code"]) == (404, "model_not_found")


def test_caller_who_leaves_frees_the_engine(replica: Replica) -> None:
    asked = {"messages": HELLO, "max_tokens": 128, "temperature": 1}
    for _ in range(8):  # twice what it bears at once
        stream = replica.stream(CHAT, asked)
        next(stream)
        stream.close()
    assert chat(replica, temperature=0)


def test_served_counts_requests_and_tokens(replica: Replica) -> None:
    used = complete(replica, "The", max_tokens=7)["usage"]
    assert used["completion_tokens"] == 7
    give_up_at = time.monotonic() + 30
    before = replica.events("served")[-1] if replica.events("served") else {"requests": 0, "output_tokens": 0}
    complete(replica, "The", max_tokens=7)
    while not replica.events("served") or replica.events("served")[-1]["requests"] <= before["requests"]:
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    assert replica.events("served")[-1]["output_tokens"] >= before["output_tokens"] + 7


def refusal(replica: Replica) -> str:
    """The code with which a request is refused; nothing where it waits for the engine."""
    connection = SocketConnection(str(replica.root / SERVE_SOCKET))
    try:
        connection.connect()
        connection.sock.settimeout(0.5)
        connection.request("POST", CHAT, encode({"messages": HELLO, "max_tokens": 1}))
        code: str = json.loads(connection.getresponse().read())["error"]["code"]
    except TimeoutError:
        return ""
    finally:
        connection.close()
    return code


def test_stopped_replica_answers_what_is_in_flight_and_refuses_the_rest(start: Callable[..., Replica]) -> None:
    replica = start(engine="transformers").until_ready()
    assert replica.process is not None
    engine = replica.engine_pids()
    stream = replica.stream(CHAT, {"messages": HELLO, "max_tokens": 128, "temperature": 1})
    next(stream)
    for pid in engine:  # else the answer may end before anything is refused
        os.kill(pid, signal.SIGSTOP)
    replica.process.send_signal(signal.SIGTERM)
    give_up_at = time.monotonic() + 30
    while not (refused := refusal(replica)):  # the signal takes a moment to arrive
        assert time.monotonic() < give_up_at
    for pid in engine:
        os.kill(pid, signal.SIGCONT)
    rest = list(stream)
    assert refused == "replica_draining"
    assert rest[-1]["choices"][0]["finish_reason"] in {"length", "stop"}
    assert replica.wait() == 75
    assert not replica.events("failed")
    assert not replica.engine_pids()
    assert not (replica.root / "serve.sock").exists()


def test_engine_that_listens_and_computes_nothing_is_found(start: Callable[..., Replica]) -> None:
    replica = start("--idle-seconds", "0.4", "--token-seconds", "1", engine="transformers").until_ready()
    for pid in replica.engine_pids():
        os.kill(pid, signal.SIGSTOP)  # its socket goes on accepting
    assert replica.wait() == 70
    (failed,) = replica.events("failed")
    assert "gave no token 2 times in a row" in failed["message"]
    assert not replica.engine_pids()
