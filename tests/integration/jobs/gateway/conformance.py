"""What each parameter of OpenAI's interface does at an address: sent by the unmodified `openai` client, and judged.

`passed`: its effect was seen in the answer. `passed on`: the engine got it as it was sent (where its requests can be
read). `answered`: there was an answer, in which no effect can be seen from outside. `refused CODE`: an error that names
the parameter. `ignored` is what may never be: an answer as if the parameter had not been sent.

    python -m tests.integration.jobs.gateway.conformance BASE_URL KEY MODEL      the table for any address
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import openai

IGNORED = "ignored"
PASSED, PASSED_ON, ANSWERED = "passed", "passed on", "answered"
WRITTEN = 24  # tokens of an answer without another limit: not every model ever comes to an end
HELLO = [{"role": "user", "content": "hello there, how are you today"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["city", "count"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": SCHEMA}}

Saw = Callable[[str], Any]  # what the engine got under a name in its newest request, or UNKNOWN
UNKNOWN = object()  # of an engine whose requests cannot be read


@dataclass(frozen=True)
class Case:
    """One parameter: how it is requested, and how its effect is observed."""

    name: str
    ask: Callable[[openai.OpenAI, str], Any]
    seen: Callable[[Any], bool] | None = None  # in the answer
    sent: Any = None  # by the engine, under the parameter's name: asked first, where its requests can be read

    @property
    def parameter(self) -> str:
        """Without what it was set to."""
        return self.name.partition(" ")[0]


def chat(**fields: Any) -> Callable[[openai.OpenAI, str], Any]:
    """A chat with these fields."""
    body = _chat_body(fields)
    return lambda client, model: client.chat.completions.create(model=model, **body)


def stream(**fields: Any) -> Callable[[openai.OpenAI, str], Any]:
    """All events of a streamed chat."""
    body = _chat_body(fields)
    return lambda client, model: list(client.chat.completions.create(model=model, stream=True, **body))


def _chat_body(fields: dict[str, Any]) -> dict[str, Any]:
    bound = {} if "max_completion_tokens" in fields else {"max_tokens": WRITTEN}
    return {"messages": HELLO, "temperature": 0, **bound, **fields}


def complete(**fields: Any) -> Callable[[openai.OpenAI, str], Any]:
    """A completion."""
    body: dict[str, Any] = {"prompt": "once upon a time", "max_tokens": 6, "temperature": 0} | fields
    return lambda client, model: client.completions.create(model=model, **body)


def embed(**fields: Any) -> Callable[[openai.OpenAI, str], Any]:
    """Embeddings; as floats, because the client's default is base64."""
    body: dict[str, Any] = {"input": ["one", "two"], "encoding_format": "float"} | fields
    return lambda client, model: client.embeddings.create(model=model, **body)


def twice(first: dict[str, Any], second: dict[str, Any]) -> Callable[[openai.OpenAI, str], Any]:
    """The texts of two chats."""
    return lambda client, model: [text(chat(**fields)(client, model)) for fields in (first, second)]


def text(answer: Any) -> str:
    """Of the first choice."""
    return str(answer.choices[0].message.content)


def differ(texts: list[str]) -> bool:
    """The second is another one."""
    return texts[0] != texts[1]


def _is_json(answer: Any) -> bool:
    try:
        return isinstance(json.loads(text(answer)), dict)
    except ValueError:
        return False


def _fits(answer: Any) -> bool:
    return _is_json(answer) and set(json.loads(text(answer))) == {"city", "count"}


SEEDED = {"temperature": 1.0, "seed": 7}
NAMED = {"type": "function", "function": {"name": "weather"}}

CHAT = (
    Case("messages", chat(), lambda a: bool(text(a))),
    Case("stream", stream(), lambda a: len(a) > 2 and a[-1].choices[0].finish_reason in {"stop", "length"}),
    Case(
        "stream_options include_usage",
        stream(stream_options={"include_usage": True}),
        lambda a: a[-1].usage.completion_tokens > 0 and not a[-1].choices,
    ),
    Case(
        "max_tokens",
        chat(max_tokens=3),
        lambda a: a.usage.completion_tokens == 3 and a.choices[0].finish_reason == "length",
    ),
    Case("max_completion_tokens", chat(max_completion_tokens=3), lambda a: a.usage.completion_tokens == 3),
    Case(
        "stop",
        lambda c, m: (whole := text(chat()(c, m)), text(chat(stop=[whole[8:12]])(c, m))),
        lambda a: a[1] == a[0][: a[0].find(a[0][8:12])],
    ),
    Case("temperature", twice({}, {"temperature": 1.9}), differ, sent=1.9),
    Case("top_p", twice({}, {"temperature": 1.9, "top_p": 1e-6}), lambda a: a[0] == a[1], sent=1e-6),
    Case("seed", twice(SEEDED, SEEDED), lambda a: a[0] == a[1]),
    Case("presence_penalty", twice({}, {"presence_penalty": 1.5}), differ),
    Case("frequency_penalty", twice({}, {"frequency_penalty": 1.5}), differ),
    Case("logit_bias", twice({}, {"logit_bias": {"65": 100}}), differ, sent={"65": 100}),
    Case("n", chat(n=2), lambda a: len(a.choices) == 2),
    Case("logprobs", chat(logprobs=True), lambda a: len(a.choices[0].logprobs.content) == a.usage.completion_tokens),
    Case(
        "top_logprobs",
        chat(logprobs=True, top_logprobs=2),
        lambda a: len(a.choices[0].logprobs.content[0].top_logprobs) == 2,
    ),
    Case(
        "tools",
        chat(tools=[TOOL], messages=[{"role": "user", "content": "ask weather"}]),
        lambda a: a.choices[0].message.tool_calls[0].function.name == "weather",
    ),
    Case(
        "tool_choice required",
        chat(tools=[TOOL], tool_choice="required"),
        lambda a: set(json.loads(a.choices[0].message.tool_calls[0].function.arguments)) == {"city", "count"},
    ),
    Case(
        "tool_choice named", chat(tools=[TOOL], tool_choice=NAMED), lambda a: a.choices[0].finish_reason == "tool_calls"
    ),
    Case("tool_choice none", chat(tools=[TOOL], tool_choice="none"), lambda a: a.choices[0].message.tool_calls is None),
    Case(
        "parallel_tool_calls false", chat(tools=[TOOL], tool_choice="required", parallel_tool_calls=False), sent=False
    ),
    Case("functions", chat(functions=[TOOL["function"]]), lambda a: a.choices[0].message.function_call is not None),
    Case("response_format json_object", chat(response_format={"type": "json_object"}), _is_json),
    Case(
        "response_format json_schema",
        chat(
            response_format={"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": SCHEMA}}
        ),
        _fits,
    ),
    Case("user", chat(user="somebody"), lambda a: bool(text(a))),
    Case("an_unknown_field", chat(extra_body={"an_unknown_field": [1]}), sent=[1]),
)
COMPLETIONS = (
    Case("prompt", complete(), lambda a: a.usage.completion_tokens == 6),
    Case("suffix", complete(suffix="the end"), sent="the end"),
    Case("n", complete(n=2, temperature=1), lambda a: len(a.choices) == 2),
    Case("logprobs", complete(logprobs=1), lambda a: len(a.choices[0].logprobs.tokens) == 6),
    Case(
        "stream",
        lambda c, m: list(complete(stream=True)(c, m)),
        lambda a: 1 < sum(bool(e.choices[0].text) for e in a) <= 6,
    ),
)
EMBEDDINGS = (
    Case("input", embed(), lambda a: len(a.data) == 2 and a.usage.prompt_tokens > 0),
    Case("encoding_format base64", embed(encoding_format="base64"), lambda a: isinstance(a.data[0].embedding, str)),
    Case("dimensions", embed(dimensions=8), lambda a: len(a.data[0].embedding) == 8),
)
KINDS: Mapping[str, tuple[Case, ...]] = {"chat": CHAT, "completion": COMPLETIONS, "embedding": EMBEDDINGS}


def judge(case: Case, client: openai.OpenAI, model: str, saw: Saw) -> str:
    """What became of one parameter."""
    try:
        answer = case.ask(client, model)
    except openai.APIStatusError as error:
        return f"refused {error.code}"
    if case.sent is not None and (got := saw(case.parameter)) is not UNKNOWN:
        return PASSED_ON if got == case.sent else IGNORED
    if case.seen is None:
        return ANSWERED
    try:
        return PASSED if case.seen(answer) else IGNORED
    except (AttributeError, TypeError, IndexError):
        return IGNORED


def table(client: openai.OpenAI, model: str, saw: Saw, kinds: Mapping[str, tuple[Case, ...]] = KINDS) -> dict[str, str]:
    """Every parameter's verdict, under `kind: parameter`."""
    return {f"{kind}: {case.name}": judge(case, client, model, saw) for kind, cases in kinds.items() for case in cases}


def as_markdown(tables: Mapping[str, Mapping[str, str]]) -> str:
    """A row for each parameter, a column for each engine."""
    names = list(dict.fromkeys(name for verdicts in tables.values() for name in verdicts))
    lines = [f"| Parameter | {' | '.join(tables)} |", "|---" * (len(tables) + 1) + "|"]
    lines += [f"| `{name}` | {' | '.join(verdicts.get(name, '-') for verdicts in tables.values())} |" for name in names]
    return "\n".join(lines) + "\n"


def read_markdown(text: str) -> dict[str, dict[str, str]]:
    """What `as_markdown` wrote."""
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.strip().splitlines())
    return {
        name: {row[0].strip("`"): row[place] for row in rows if row[place] != "-"}
        for place, name in enumerate(head)
        if place
    }


if __name__ == "__main__":
    url, key, named = sys.argv[1:4]
    print(
        as_markdown(
            {named: table(openai.OpenAI(base_url=url, api_key=key, max_retries=0), named, lambda name: UNKNOWN)}
        )
    )
