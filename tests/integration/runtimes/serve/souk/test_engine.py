"""What the engine answers, over its socket."""

from __future__ import annotations

import base64
import json
import shutil
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.integration.runtimes.serve.souk.conftest import SLOTS, Engine, UnixConnection, start

CHAT, COMPLETIONS, CHECK = "/v1/chat/completions", "/v1/completions", "/souk/v1/check"
GREEDY = {"temperature": 0, "ignore_eos": True}
HELLO = [{"role": "user", "content": "the quick"}]


def content(answer: dict[str, Any], index: int = 0) -> str:
    return answer["choices"][index]["message"]["content"]


def check_of(kind: str, body: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """The question whether this answer is right."""
    committed = {one["index"]: one for one in answer["souk_commitment"]}
    answers = [
        {
            "index": one["index"],
            "text": one["message"]["content"] if kind == "chat" else one["text"],
            "finish_reason": one["finish_reason"],
            "output_ids": committed[one["index"]]["output_ids"],
            "commitment": committed[one["index"]]["commitment"],
        }
        for one in answer["choices"]
    ]
    return {"kind": kind, "request": body, "answers": answers}


def test_only_its_user_may_reach_the_socket(engine: Engine):
    assert stat.S_IMODE(engine.path.stat().st_mode) == 0o600


def test_a_chat_is_answered_and_counted(engine: Engine):
    before = engine.metric("souk_output_tokens_total")
    answer = engine.ok(CHAT, {"model": "fox", "messages": HELLO, "max_tokens": 12, **GREEDY})
    assert answer["usage"]["completion_tokens"] == 12
    assert answer["choices"][0]["finish_reason"] == "length"
    assert engine.metric("souk_output_tokens_total") == before + 12
    assert json.loads(engine.get("/facts")[1])["context"] == 256


def test_a_stream_says_what_the_whole_answer_says(engine: Engine):
    body = {"messages": HELLO, "max_tokens": 30, "seed": 4, "n": 2}
    whole = engine.ok(CHAT, body)
    events = engine.stream(CHAT, body | {"stream_options": {"include_usage": True}})
    for index in range(2):
        deltas = [c["delta"].get("content", "") for e in events for c in e["choices"] if c["index"] == index]
        assert "".join(deltas) == content(whole, index)
    assert content(whole, 0) != content(whole, 1)
    assert events[-1]["usage"] == whole["usage"]


def test_many_at_once_get_what_each_gets_alone(engine: Engine):
    bodies = [
        {
            "prompt": "the quick brown " * (1 + n % 5),
            "max_tokens": 5 + 7 * (n % 6),
            "seed": n,
            **({} if n % 2 else GREEDY),
        }
        for n in range(3 * SLOTS)
    ]
    alone = [engine.ok(COMPLETIONS, body)["choices"][0]["text"] for body in bodies]
    with ThreadPoolExecutor(len(bodies)) as pool:
        together = list(pool.map(lambda body: engine.ok(COMPLETIONS, body)["choices"][0]["text"], bodies))
    assert together == alone


@pytest.mark.parametrize("how", [GREEDY, {"seed": 11, "temperature": 0.9, "top_p": 0.9, "ignore_eos": True}])
@pytest.mark.parametrize("cut", [1, 9, 25])
def test_an_answer_that_goes_on_elsewhere_is_the_one_it_would_have_been(engine: Engine, how: dict[str, Any], cut: int):
    whole = engine.ok(CHAT, {"messages": HELLO, "max_tokens": 40, "souk_commit": True, **how})
    ids = whole["souk_commitment"][0]["output_ids"]
    rest = engine.ok(
        CHAT, {"messages": HELLO, "max_tokens": 40 - cut, "souk_commit": True, "souk_continue_ids": ids[:cut], **how}
    )
    assert ids[:cut] + rest["souk_commitment"][0]["output_ids"] == ids


def test_an_answer_goes_on_from_its_text(engine: Engine):
    whole = content(engine.ok(CHAT, {"messages": HELLO, "max_tokens": 40, **GREEDY}))
    begun = content(engine.ok(CHAT, {"messages": HELLO, "max_tokens": 18, **GREEDY}))
    more = {"continue_final_message": True, "add_generation_prompt": False, "max_tokens": 22, **GREEDY}
    rest = content(engine.ok(CHAT, {"messages": [*HELLO, {"role": "assistant", "content": begun}], **more}))
    assert whole == begun + rest


def test_a_stop_string_is_held_back_whole(engine: Engine):
    plain = content(engine.ok(CHAT, {"messages": HELLO, "max_tokens": 40, **GREEDY}))
    stop = plain[10:14]
    body = {"messages": HELLO, "max_tokens": 40, "stop": [stop, "never"], **GREEDY}
    answer = engine.ok(CHAT, body)
    assert content(answer) == plain[: plain.index(stop)] and answer["choices"][0]["finish_reason"] == "stop"
    streamed = [c["delta"].get("content", "") for e in engine.stream(CHAT, body) for c in e["choices"]]
    assert "".join(streamed) == content(answer)


def test_log_probabilities_are_those_of_the_tokens(engine: Engine):
    answer = engine.ok(CHAT, {"messages": HELLO, "max_tokens": 5, "logprobs": True, "top_logprobs": 3, **GREEDY})
    rows = answer["choices"][0]["logprobs"]["content"]
    assert len(rows) == 5 and all(len(row["top_logprobs"]) == 3 for row in rows)
    assert all(row["logprob"] == row["top_logprobs"][0]["logprob"] <= 0 for row in rows)


def test_who_hangs_up_is_not_written_for(engine: Engine):
    before = engine.metric("souk_output_tokens_total")
    connection = UnixConnection(engine.path)
    prompts, choices, tokens = 8, 8, 200  # some seconds of writing: it is not done when this process hangs up late
    body = {"prompt": ["the quick"] * prompts, "n": choices, "max_tokens": tokens, "stream": True, **GREEDY}
    connection.request("POST", COMPLETIONS, json.dumps(body))
    connection.getresponse().read(10)
    connection.close()
    until, seen = time.monotonic() + 30, -1
    while (now := engine.metric("souk_output_tokens_total")) != seen:
        assert time.monotonic() < until, "it writes on"
        seen = now
        time.sleep(0.3)
    assert seen - before < prompts * choices * tokens


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {"messages": HELLO, "tools": [{"type": "function"}]}, "tools"),
        (CHAT, {"messages": HELLO, "response_format": {"type": "json_object"}}, "response_format"),
        (CHAT, {"messages": HELLO, "temperature": 9}, "temperature"),
        (CHAT, {"messages": HELLO, "model": "dog"}, "model"),
        (COMPLETIONS, {"prompt": "a " * 600}, "prompt"),
        (COMPLETIONS, {"prompt": [5, 4000]}, "prompt"),
        (COMPLETIONS, b"{", None),
    ],
)
def test_a_mistake_is_refused_by_name(engine: Engine, path: str, body: Any, param: str | None):
    status, answer = engine.post(path, body)
    assert (status, answer["error"]["param"]) == (400, param)


def test_more_than_may_wait_is_refused_with_429(engine: Engine):
    body = {"prompt": ["the"] * 16, "n": 8, "max_tokens": 3}
    with ThreadPoolExecutor(8) as pool:
        statuses = {status for status, _ in pool.map(lambda _: engine.post(COMPLETIONS, body), range(8))}
    assert statuses == {200, 429}


@pytest.mark.parametrize("how", [GREEDY, {"seed": 3}, {"seed": 3, "temperature": 0.8, "top_p": 0.9, "n": 2}])
def test_a_right_answer_is_a_match(engine: Engine, how: dict[str, Any]):
    body = {"messages": HELLO, "max_tokens": 70, "souk_commit": True, **how}
    checked = engine.ok(CHECK, check_of("chat", body, engine.ok(CHAT, body)))
    assert checked["verdict"] == "match", checked


def test_a_wrong_answer_is_found_and_named(engine: Engine):
    body = {"prompt": "the quick brown fox", "max_tokens": 40, "souk_commit": True, "seed": 5, "ignore_eos": True}
    question = check_of("completion", body, engine.ok(COMPLETIONS, body))

    def faults(**changes: Any) -> set[str]:
        checked = engine.ok(CHECK, {**question, **changes})
        return set(checked["choices"][0]["faults"]) if checked["verdict"] == "mismatch" else set()

    claim = question["answers"][0]
    assert faults() == set()
    assert faults(request=body | {"temperature": 1.5}) == {"said_sampling", "drawing"}
    assert {"said_prompt"} <= faults(request=body | {"prompt": "one two three four"})
    assert faults(answers=[claim | {"text": claim["text"] + "!"}]) == {"text"}
    assert faults(answers=[claim | {"finish_reason": "stop"}]) == {"finish"}
    turned = [*claim["output_ids"][:9], *reversed(claim["output_ids"][9:])]
    assert {"said_output", "decoding", "drawing", "text"} <= faults(answers=[claim | {"output_ids": turned}])
    spoilt = bytearray(base64.b64decode(claim["commitment"]))
    spoilt[-60:] = bytes(60)
    assert faults(answers=[claim | {"commitment": base64.b64encode(spoilt).decode()}]) == {"decoding"}
    for nonsense in ("AAAA", "é", None):
        assert faults(answers=[claim | {"commitment": nonsense}]) == {"commitment"}
    for ids in ([], ["x"], None, [4000], [-1], [5] * 300):  # what cannot be checked is no way out
        assert faults(answers=[claim | {"output_ids": ids}]) == {"tokens"}
    assert faults(answers=[claim | {"text": None, "finish_reason": None}]) == set()


def test_a_replica_with_rounded_weights_that_says_they_are_the_true_ones_is_found(
    engine: Engine, model_folder: Path, tmp_path: Path
):
    from safetensors.torch import load_file, save_file

    from runtimes.serve.engines.souk.model import folder_digest

    cheap = tmp_path / "cheap"
    shutil.copytree(model_folder, cheap)
    weights = load_file(cheap / "model.safetensors")
    for name, rows in weights.items():
        if rows.ndim == 2:  # as int8 would keep them
            scale = rows.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
            weights[name] = ((rows / scale).round() * scale).contiguous()
    save_file(weights, cheap / "model.safetensors", metadata={"format": "pt"})
    mallory = start(cheap, tmp_path / "m.sock", "--digest", folder_digest(model_folder))
    try:
        body = {"messages": HELLO, "max_tokens": 40, "souk_commit": True, "seed": 1, "ignore_eos": True}
        checked = engine.ok(CHECK, check_of("chat", body, mallory.ok(CHAT, body)))
    finally:
        mallory.process.terminate()
        mallory.process.wait(30)
    assert checked["verdict"] == "mismatch"
    faults = set(checked["choices"][0]["faults"])
    assert {"prompt", "decoding"} & faults
    assert "said_weights" not in faults
