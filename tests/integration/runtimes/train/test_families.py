"""Models as the hub has them, made small: fine-tuned and exported with all that was theirs beside the weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from runtimes.contract import Env, ExitCode
from tests.integration.runtimes.programs import MICRO_CONFIG, Work
from tests.integration.runtimes.serve.conftest import link_model
from tests.integration.runtimes.serve.replicas import Replica
from tests.integration.runtimes.train.families import FAMILIES, Family, make_folder

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a list?"}]


@dataclass(frozen=True)
class Tuned:
    """A model before and after."""

    family: Family
    work: Work
    before: Path
    after: Path  # by an attempt that was resumed


@pytest.fixture(scope="module", params=FAMILIES)
def tuned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tuned]:
    family = FAMILIES[request.param]
    work = Work(tmp_path_factory.mktemp("tuned"), ranks=1, launched=False, env={Env.CHECKPOINT_EVERY_STEPS: "2"})
    work.write({**MICRO_CONFIG, "model": "mine", "steps": 3, "warmup_steps": 0, "sample_every": -1})
    before = make_folder(family, work.root / "input" / "mine")
    code, output = work.run()
    assert code == ExitCode.OK, output
    shutil.rmtree(work.root / "output")  # what follows is what comes of a resume: the model is not built of its weights
    work.env[Env.RESUME_FROM] = str(work.checkpoints / "step-00000002")
    code, output = work.run()
    assert code == ExitCode.OK, output
    assert work.events("resumed")
    yield Tuned(family, work, before, work.root / "output" / "model")
    shutil.rmtree(work.root)


def test_documents_end_as_the_models_own_do(tuned: Tuned) -> None:
    tokenizer = Tokenizer.from_file(str(tuned.before / "tokenizer.json"))
    tokens = numpy.fromfile(tuned.work.root / "cache" / "tokens.int32", dtype="<i4")
    assert int(tokens[-1]) == tokenizer.token_to_id(tuned.family.end)
    begun = tokenizer.token_to_id(tuned.family.begin) if tuned.family.begin else None
    assert begun is None or int(tokens[0]) == begun


def test_weights_were_trained_and_are_kept_as_they_came(tuned: Tuned) -> None:
    before, after = (AutoModelForCausalLM.from_pretrained(folder) for folder in (tuned.before, tuned.after))
    assert before.dtype == after.dtype == tuned.family.dtype
    learned = dict(after.named_parameters())
    with torch.no_grad():
        moved = [float((learned[name] - weight).float().abs().max()) for name, weight in before.named_parameters()]
    assert min(moved) > 0
    assert max(moved) < 0.1, "it began from these weights"


def test_all_that_came_beside_the_weights_leaves_with_them(tuned: Tuned) -> None:
    before, after = (AutoTokenizer.from_pretrained(folder) for folder in (tuned.before, tuned.after))
    assert before.chat_template
    asked = {"add_generation_prompt": True, "tokenize": False}
    assert after.apply_chat_template(MESSAGES, **asked) == before.apply_chat_template(MESSAGES, **asked)
    assert after.special_tokens_map == before.special_tokens_map
    assert after("What is a list?")["input_ids"] == before("What is a list?")["input_ids"]
    generation = [json.loads((folder / "generation_config.json").read_text()) for folder in (tuned.before, tuned.after)]
    assert generation[0] == generation[1]
    configs = [AutoConfig.from_pretrained(folder) for folder in (tuned.before, tuned.after)]
    assert configs[0].eos_token_id == configs[1].eos_token_id
    assert configs[0].to_diff_dict() == configs[1].to_diff_dict()


def test_engine_answers_by_its_template(tuned: Tuned, tmp_path: Path) -> None:
    replica = Replica(tmp_path / "replica").write({"engine": tuned.family.engine, "dtype": "float32"})
    try:
        link_model(replica, tuned.after).start().until_ready()
        body = {"model": "tiny", "messages": MESSAGES, "max_tokens": 4, "temperature": 0}
        status, answer = replica.ask("/v1/chat/completions", body)
    finally:
        replica.end()
    assert status == 200, answer
    tokenizer: Any = AutoTokenizer.from_pretrained(tuned.before)
    asked = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=True, return_dict=True)
    assert answer["usage"]["prompt_tokens"] == len(asked["input_ids"])


def test_weights_without_a_tokenizer_are_refused(tmp_path: Path) -> None:
    work = Work(tmp_path / "work", ranks=1, launched=False)
    work.write({**MICRO_CONFIG, "model": "mine", "steps": 3})
    (make_folder(FAMILIES["qwen-2"], work.root / "input" / "mine") / "tokenizer.json").unlink()
    code, output = work.run()
    assert code == ExitCode.BAD_DATA, output
    assert "model 'mine' has weights and no tokenizer.json" in work.events("failed")[0]["message"]
