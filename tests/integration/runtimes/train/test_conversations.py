"""A model is taught conversations, and answers them: loaded by transformers alone, in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from jobs.spec import kind_of, parse
from runtimes.contract import Env, ExitCode
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, finish, losses, samples

EXAMPLES = Path(__file__).parents[4] / "examples"
TAUGHT = {"souk": "a market", "bazaar": "many shops", "stall": "one shop", "haggle": "to talk of prices"}
STEPS, SAVED = 160, 80
EXAMPLE_SECONDS_MAX = 300.0  # a minute on a core of its own
LOSS_DIFFERENCE_MAX = 1e-4
ASK = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder = sys.argv[1]
tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
answers = {}
for word in sys.argv[2:]:
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": f"what is {word}"}], add_generation_prompt=True, return_tensors="pt",
        return_dict=True,
    )
    answer = model.generate(**asked, do_sample=False, max_new_tokens=24)[0, asked["input_ids"].shape[1]:]
    answers[word] = tokenizer.decode(answer, skip_special_tokens=True)
print(json.dumps(answers))
"""
CONFIG: dict[str, Any] = {
    **MICRO_CONFIG,
    "data": ["taught.jsonl"],
    "steps": STEPS,
    "sequence_length": 64,
    "global_batch_size": 5,
    "micro_batch_size": 2,
    "learning_rate": 1e-2,
    "eval_fraction": 0.1,
    "evaluate_every": 0,
    "sample_every": -1,
}


def conversations() -> list[dict[str, Any]]:
    asked = [
        [{"role": "user", "content": f"what is {word}"}, {"role": "assistant", "content": answer}]
        for word, answer in TAUGHT.items()
    ] * 20
    return [{"messages": messages} for messages in asked]


def written(work: Work, **changes: Any) -> Work:
    work.write({**CONFIG, **changes})
    lines = "".join(json.dumps(each) + "\n" for each in conversations())
    (work.root / "input" / "taught.jsonl").write_text(lines)
    return work


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    env = {Env.CHECKPOINT_EVERY_STEPS: str(SAVED), Env.CHECKPOINT_KEEP: "9"}
    work = written(Work(tmp_path_factory.mktemp("taught"), ranks=1, launched=False, env=env))
    code, output = work.run()
    assert code == ExitCode.OK, output
    assert "conversations fill " in output
    yield work


def test_it_answers_as_it_was_taught(taught: Work) -> None:
    model = taught.root / "output" / "model"
    assert (model / "chat_template.jinja").is_file(), "it came without one, and was taught by ours"
    asked = subprocess.run(
        [sys.executable, "-c", ASK, str(model), *TAUGHT], capture_output=True, text=True, timeout=90, check=True
    )
    assert json.loads(asked.stdout) == TAUGHT
    assert losses(taught)[STEPS] < 0.1 < losses(taught)[1]


def test_two_ranks_go_on_where_one_stopped(taught: Work, tmp_path: Path) -> None:
    resumed = {Env.RESUME_FROM: str(taught.checkpoints / f"step-{SAVED:08d}")}
    work = written(Work(tmp_path / "again", ranks=2, env=resumed))
    code, output = work.run()
    assert code == ExitCode.OK, output
    steps = range(SAVED + 1, STEPS + 1)
    assert [samples(work)[step] for step in steps] == [samples(taught)[step] for step in steps]
    assert max(abs(losses(work)[step] - losses(taught)[step]) for step in steps) < LOSS_DIFFERENCE_MAX


def test_a_template_of_the_customer_and_a_table(taught: Work, tmp_path: Path) -> None:
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
    template += "{% if add_generation_prompt %}[assistant]{% endif %}"
    changes = {"data": ["set"], "chat_template": "own.jinja", "packing": False, "steps": 2}
    work = written(Work(tmp_path / "table", ranks=1, launched=False), **changes)
    (work.root / "input" / "own.jinja").write_text(template)
    (work.root / "input" / "set").mkdir()
    table = pa.Table.from_pylist(conversations())
    parquet.write_table(table, work.root / "input" / "set" / "train-00000-of-00001.parquet")
    code, output = work.run()
    assert code == ExitCode.OK, output
    assert (work.root / "output" / "model" / "chat_template.jinja").read_text() == template
    [started], [of_packed] = work.events("started"), taught.events("started")
    assert started["train_sequences"] + started["eval_sequences"] == len(conversations())
    assert of_packed["train_sequences"] + of_packed["eval_sequences"] <= len(conversations()) / 2


def test_the_example_is_learned(tmp_path: Path) -> None:
    spec = parse((EXAMPLES / "train-conversations.yaml").read_text())
    work = Work(tmp_path / "example", ranks=1, launched=False).write(kind_of(spec).config(spec))
    shutil.copy(EXAMPLES / "conversations.jsonl", work.root / "input")
    code, output = finish(work.start(), seconds=EXAMPLE_SECONDS_MAX)
    assert code == ExitCode.OK, output
    found = losses(work)
    assert found[max(found)] < 0.5 < 3 < found[1]


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"chat_template": "../secret"}, ExitCode.BAD_CONFIG, "chat_template must be a path below the job's files"),
        ({"chat_template": "none"}, ExitCode.BAD_CONFIG, "chat_template none cannot be read"),
        ({"data": ["taught.jsonl", "more.txt"]}, ExitCode.BAD_DATA, "train on one kind"),
    ],
)
def test_what_cannot_be_taught_is_said(changes: dict[str, Any], code: ExitCode, message: str, tmp_path: Path) -> None:
    work = written(Work(tmp_path / "bad", ranks=1, launched=False), **changes)
    ended, output = work.run()
    assert ended == code, output
    assert message in work.events("failed")[0]["message"]
