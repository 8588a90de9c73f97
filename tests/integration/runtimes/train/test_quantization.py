"""Adapters beside a base in four bits: alike however ranks share it, resumed, and merged with the base as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from runtimes.contract import Env, ExitCode, checkpoint_folder
from runtimes.train.checkpoint_reader import DataOnlyReader
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, losses, samples
from tests.integration.runtimes.train.families import FAMILIES, make_folder

pytest.importorskip("bitsandbytes")

STEPS, SAVED_STEP = 12, 4
DIFFERENCE_MAX = 1e-5
BFLOAT16_DIFFERENCE_MAX = 0.02  # of losses near 6
CONFIG: dict[str, Any] = {
    **MICRO_CONFIG,
    "model": "mine",
    "steps": STEPS,
    "warmup_steps": 0,
    "learning_rate": 0.01,
    "evaluate_every": 0,
    "sample_every": -1,
    "lora": {"rank": 4},
    "quantize": "nf4",
}


def prepare(root: Path, *, ranks: int = 1, env: Any = None, **changes: Any) -> Work:
    """A training that has not begun."""
    settings = {Env.CHECKPOINT_EVERY_STEPS: str(SAVED_STEP), Env.CHECKPOINT_KEEP: "9", **(env or {})}
    work = Work(root, ranks=ranks, launched=ranks > 1, env=settings).write({**CONFIG, **changes})
    make_folder(FAMILIES["llama-3"], root / "input" / "mine")
    return work


def train(root: Path, **changes: Any) -> Work:
    """One that came to its end."""
    work = prepare(root, **changes)
    code, output = work.run()
    assert code == ExitCode.OK, output
    return work


def assert_same(work: Work, like: Work, *, first: int = 1, difference: float = DIFFERENCE_MAX) -> None:
    """The same samples with the same losses, from this step on."""
    steps = range(first, STEPS + 1)
    assert samples(work) == {step: samples(like)[step] for step in steps}
    assert losses(work) == pytest.approx({step: losses(like)[step] for step in steps}, abs=difference)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Work:
    return train(tmp_path_factory.mktemp("tuned"))


def test_base_in_four_bits_trains_and_is_not_the_base(tuned: Work, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", quantize=None)
    found, plain = losses(tuned), losses(whole)
    assert found[STEPS] < found[1] - 0.03
    assert found[STEPS] == pytest.approx(plain[STEPS], abs=0.02)
    assert abs(found[1] - plain[1]) > 1e-5


@pytest.mark.parametrize("strategy", ["fsdp2", "ddp", pytest.param("hsdp", marks=pytest.mark.soak)])
def test_ranks_share_it_and_train_alike(tuned: Work, strategy: str, tmp_path: Path) -> None:
    assert_same(train(tmp_path / strategy, ranks=2, strategy=strategy), tuned)


@pytest.mark.parametrize("strategy", ["fsdp2", pytest.param("ddp", marks=pytest.mark.soak)])
def test_bfloat16_is_the_dtype_of_the_storage(tuned: Work, strategy: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"dtype": "bfloat16", "activation_checkpointing": "full"}
    work = train(tmp_path / strategy, ranks=2, strategy=strategy, **changes)
    assert_same(work, tuned, difference=BFLOAT16_DIFFERENCE_MAX)


def test_resume_on_other_ranks_goes_on(tuned: Work, tmp_path: Path) -> None:
    saved = checkpoint_folder(tuned.checkpoints, SAVED_STEP)
    names = {name for name in DataOnlyReader(saved).read_metadata().state_dict_metadata if name.startswith("model.")}
    assert names, "it has the adapters"
    assert all(".lora_" in name for name in names), "and nothing of the base"
    work = train(tmp_path / "resumed", ranks=2, env={Env.RESUME_FROM: str(saved)})
    assert_same(work, tuned, first=SAVED_STEP + 1)


def test_resume_without_the_four_bits_is_refused(tuned: Work, tmp_path: Path) -> None:
    saved = checkpoint_folder(tuned.checkpoints, SAVED_STEP)
    work = prepare(tmp_path / "refused", env={Env.RESUME_FROM: str(saved)}, quantize=None)
    code, output = work.run()
    assert code == ExitCode.BAD_CHECKPOINT, output
    assert "quantize was 'nf4' in the checkpoint, is None" in work.events("failed")[0]["message"]


@pytest.mark.filterwarnings("ignore")
def test_result_is_the_published_base_with_its_adapters(tuned: Work) -> None:
    base, output = tuned.root / "input" / "mine", tuned.root / "output"
    plain, merged = (load_file(folder / "model.safetensors") for folder in (base, output / "model"))
    assert torch.equal(plain["model.embed_tokens.weight"], merged["model.embed_tokens.weight"])
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    adapted: Any = PeftModel.from_pretrained(model, str(output / "adapter"))
    whole = adapted.merge_and_unload().state_dict()
    for name, weight in merged.items():
        assert weight.dtype == plain[name].dtype
        torch.testing.assert_close(weight.float(), whole[name], atol=2e-3, rtol=1e-2)


def test_answers_are_preferred_beside_it(tmp_path: Path) -> None:
    rows = "".join(f'{{"prompt": "Say {each}:", "chosen": " yes {each}", "rejected": " no"}}\n' for each in range(20))
    found = []
    for ranks in (1, 2):
        work = prepare(tmp_path / str(ranks), ranks=ranks, data=["pairs.jsonl"], dpo={}, global_batch_size=4)
        (work.root / "input" / "pairs.jsonl").write_text(rows)
        code, output = work.run()
        assert code == ExitCode.OK, output
        found.append(losses(work))
    assert found[0][1] == pytest.approx(0.6931472, abs=1e-6)
    assert found[0][STEPS] < 0.6
    assert found[1] == pytest.approx(found[0], abs=DIFFERENCE_MAX)
