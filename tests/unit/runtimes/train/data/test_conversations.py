"""Records as text, and which part of it is learned: by the templates of several families."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from runtimes.train.data.conversations import Conversations, is_text, open_conversations, text_of
from runtimes.train.data.documents import Record, Run
from runtimes.train.data.tokenizer import END_OF_TEXT, train_tokenizer
from runtimes.train.errors import BadConfig, BadData

RUN = Run(None, 0, 1, 1)
# What each family does that another does not: cut white space, refuse a role, begin with a token of its own, drop what
# was thought before the last answer.
CHATML = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA = (
    "{{- bos_token }}{%- for m in messages %}{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' "
    "+ m.content | trim + '<|eot_id|>' }}{%- endfor %}{%- if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)
MISTRAL = (
    "{{- bos_token }}{%- for m in messages %}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{- raise_exception('roles must alternate user/assistant') }}{%- endif %}"
    "{%- if m.role == 'user' %}{{- ' [INST] ' + m.content + ' [/INST]' }}"
    "{%- else %}{{- ' ' + m.content + eos_token }}{%- endif %}{%- endfor %}"
)
QWEN = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}{%- if m.role == 'assistant' and loop.last %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{{- m.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": " Two? "},
    {"role": "assistant", "content": "Three."},
    {"role": "user", "content": "Sure?"},
    {"role": "assistant", "content": "No."},
]


def conversations(template: str | None = None, *, learns_inputs: bool = False) -> Conversations:
    tokenizer = train_tokenizer(["a souk"], 300)
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    if template is None:
        return open_conversations(tokenizer, None, end_id=0, template_path=None, learns_inputs=learns_inputs)
    return Conversations(whole, template, is_own=False, learns_inputs=learns_inputs)


def learned(value: dict[str, Any], template: str | None = None, **how: bool) -> list[str]:
    example = conversations(template, **how).write(Record(value, RUN, 6))
    return [example.text[start:end] for start, end in example.learned]


@pytest.mark.parametrize(
    ("template", "answers"),
    [
        (CHATML, ["Three.<|im_end|>\n", "No.<|im_end|>\n"]),
        (LLAMA, ["Three.<|eot_id|>", "No.<|eot_id|>"]),
        (MISTRAL, [" Three.</s>", " No.</s>"]),
        (QWEN, ["Three.<|im_end|>\n", "<think>\n\n</think>\n\nNo.<|im_end|>\n"]),
        (None, [f"Three.{END_OF_TEXT}\n", f"No.{END_OF_TEXT}\n"]),
    ],
    ids=["chatml", "llama", "mistral", "qwen", "own"],
)
def test_answers_are_learned_with_their_end(template: str | None, answers: list[str]) -> None:
    assert learned({"messages": CHAT}, template) == answers


@pytest.mark.parametrize(
    "value",
    [
        {"conversations": [{"from": "human", "value": "Two?"}, {"from": "gpt", "value": "Three."}]},
        {"messages": [CHAT[0], {"role": "assistant", "content": [{"type": "text", "text": "Three."}]}]},
        {"prompt": [CHAT[0]], "completion": [CHAT[1]]},
        {"prompt": CHAT[:3], "completion": [{"role": "assistant", "content": "Three."}]},
        {"instruction": "Add one.", "input": "Two", "output": "Three."},
        {"instruction": "Add one to two.", "input": "", "output": "Three.", "text": "### Add one to two. Three."},
        {"system": "Count.", "conversations": [{"from": "user", "value": "2?"}, {"from": "GPT", "value": "Three."}]},
        {"messages": CHAT[:2], "text": "the same, written"},
        {  # as a table has it, every key in every row
            "messages": None,
            "conversations": [
                {"role": None, "content": None, "from": "human", "value": "Two?"},
                {"role": "assistant", "content": "Three.", "from": None, "value": None, "tool_calls": None},
            ],
            "text": None,
        },
    ],
)
def test_every_way_to_keep_a_conversation_is_read(value: dict[str, Any]) -> None:
    record = Record(value, RUN, 0)
    assert not is_text(record)
    assert "Three." in text_of(record)
    assert learned(value, CHATML) == ["Three.<|im_end|>\n"]


def test_a_completion_is_learned_and_its_prompt_is_not() -> None:
    value = {"prompt": "Two and one are ", "completion": "three"}
    assert learned(value) == [f"three{END_OF_TEXT}"]
    assert learned(value, learns_inputs=True) == [f"Two and one are three{END_OF_TEXT}"]
    assert learned({"messages": CHAT[:2]}, CHATML, learns_inputs=True) == [
        "<|im_start|>user\n Two? <|im_end|>\n<|im_start|>assistant\nThree.<|im_end|>\n"
    ]


def test_a_conversation_without_an_answer_teaches_nothing() -> None:
    assert learned({"messages": [CHAT[0]]}, CHATML) == []
    drops = "{%- for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    example = conversations(drops).write(Record({"messages": CHAT}, RUN, 0))
    assert (example.learned, example.passed_over) == ((), 2)


def test_a_template_writes_the_same_day_on_every_day() -> None:
    template = "{{- strftime_now('%d %b %Y') }}" + CHATML
    assert conversations(template).write(Record({"messages": CHAT}, RUN, 0)).text.startswith("26 Jul 2024<|im_start|>")


def test_our_own_template_begins_as_the_tokenizer_begins_a_text_and_leaves_only_where_it_was_used() -> None:
    tokenizer = train_tokenizer(["a souk"], 300)
    tokenizer.add_special_tokens(["<s>"])
    first = [("<s>", tokenizer.token_to_id("<s>"))]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=first)
    opened = open_conversations(tokenizer, None, end_id=0, template_path=None, learns_inputs=False)
    opened.write(Record({"prompt": "a ", "completion": "souk"}, RUN, 0))
    assert opened.kept_template is None
    assert opened.write(Record({"messages": CHAT}, RUN, 0)).text.startswith("<s><|user|>\n")
    assert opened.kept_template is not None
    assert opened.kept_template.startswith('{{- "<s>" }}')
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "haggle", "arguments": "{}"}}]}
    with pytest.raises(BadData, match="it has no way to write calls of tools: name a chat_template"):
        opened.write(Record({"messages": [CHAT[0], called]}, RUN, 0))


def test_a_prompt_begins_as_the_tokenizer_begins_a_text() -> None:
    tokenizer = train_tokenizer(["a souk"], 300)
    tokenizer.add_special_tokens(["<s>"])
    first = [("<s>", tokenizer.token_to_id("<s>"))]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=first)
    opened = open_conversations(tokenizer, None, end_id=0, template_path=None, learns_inputs=False)
    example = opened.write(Record({"prompt": "a ", "completion": "souk"}, RUN, 0))
    assert example.text == f"<s>a souk{END_OF_TEXT}"
    assert tokenizer.encode(example.text, add_special_tokens=False).ids[0] == tokenizer.token_to_id("<s>")
    [(start, end)] = example.learned
    assert example.text[start:end] == f"souk{END_OF_TEXT}"


def test_tools_reach_the_template() -> None:
    template = "{%- for tool in tools %}{{ tool.function.name }};{% endfor %}" + CHATML
    tools = [{"type": "function", "function": {"name": "haggle", "description": "", "parameters": {}}}]
    template += (
        "{%- for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    )
    said = {"function": {"name": "haggle", "arguments": '{"down_to": 3}', "of_another_row": None}}
    called = {"role": "assistant", "content": None, "tool_calls": [said]}
    value = {"messages": [CHAT[0], called, {"role": "tool", "content": "12"}, CHAT[3]], "tools": json.dumps(tools)}
    example = conversations(template).write(Record(value, RUN, 0))
    assert example.text.startswith("haggle;<|im_start|>user")
    assert example.text.endswith('{"down_to": 3}')


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"txt": 1}, 'python-docs row 7 has none of "text", "messages"'),
        ({"messages": []}, "has 0 messages, from 1 to 2000 are possible"),
        ({"messages": [CHAT[0]] * 2001}, "has 2001 messages"),
        ({"messages": ["hello"]}, "a message must be an object with role and content"),
        ({"messages": [{"role": "user", "content": 3}]}, "must have a role and a content that are texts"),
        ({"messages": [{"role": None, "content": "x"}]}, "must have a role and a content that are texts"),
        (
            {"messages": [CHAT[0], {"role": "function_call", "content": "x"}]},
            "role is 'function_call', expected one of",
        ),
        ({"messages": CHAT[1:]}, "the chat template refuses the conversation: roles must alternate"),
        ({"messages": CHAT, "tools": "haggle"}, '"tools" must be a list of objects'),
        ({"prompt": "a", "completion": [CHAT[1]]}, "must both be texts, or both lists of messages"),
        ({"prompt": 3, "completion": "x"}, "must be a text or a list of messages"),
        ({"instruction": "a", "output": 3}, "must be a text or a list of messages"),
    ],
)
def test_what_is_no_conversation_is_refused_by_its_place(value: dict[str, Any], message: str) -> None:
    record = Record(value, RUN, 6)
    with pytest.raises(BadData, match=message):
        if not is_text(record):
            conversations(MISTRAL).write(record)


def test_a_template_of_the_customer_goes_before_the_models(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["a souk"], 300)
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END_OF_TEXT)
    whole.chat_template = LLAMA
    whole.save_pretrained(tmp_path)
    (tmp_path / "own.jinja").write_text(CHATML)

    def opened(path: Path | None) -> Conversations:
        return open_conversations(tokenizer, tmp_path, end_id=0, template_path=path, learns_inputs=False)

    assert opened(None).kept_template is None, "it leaves with the model as it came"
    assert "<|eot_id|>" in opened(None).write(Record({"messages": CHAT}, RUN, 0)).text
    own = opened(tmp_path / "own.jinja")
    assert "<|im_end|>" in own.write(Record({"messages": CHAT}, RUN, 0)).text
    assert own.kept_template == CHATML
    with pytest.raises(BadConfig, match=r"chat_template none\.jinja cannot be read"):
        opened(tmp_path / "none.jinja")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"text": "LEARN ME", "chosen": "good", "rejected": "bad"}, "LEARN ME"),
        ({"text": "LEARN ME", "chosen": 0.5, "rejected": ["a"]}, "LEARN ME"),
        ({"prompt": "a", "completion": "b", "chosen": "good", "rejected": "bad"}, "a\nb"),
        ({"prompt": "a", "chosen": "good", "rejected": "bad"}, "a\ngood\nbad"),
    ],
)
def test_columns_of_pairs_beside_another_kind_change_nothing(value: dict[str, Any], text: str) -> None:
    assert text_of(Record(value, RUN, 0)) == text
