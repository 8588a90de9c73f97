"""Adapters train alike however the ranks share the work, go on after a kill, and leave as engines take them."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from runtimes.contract import MANIFEST_NAME, Env, ExitCode, checkpoint_folder
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, kill_group, losses, samples, wait_until
from tests.integration.runtimes.train.families import FAMILIES, Family, make_folder

STEPS = 24
SAVED_STEP = 4
LOSS_DIFFERENCE_MAX = 1e-4
BFLOAT16_DIFFERENCE_MAX = 0.02  # of losses near 6
LORA: dict[str, Any] = {"rank": 4}
CONFIG: dict[str, Any] = {
    **MICRO_CONFIG,
    "model": "mine",
    "steps": STEPS,
    "warmup_steps": 0,
    "learning_rate": 0.002,
    "evaluate_every": 0,
    "sample_every": -1,
    "lora": LORA,
}
PUBLISHED = {
    "llama-3": replace(FAMILIES["llama-3"], dtype=torch.float32),
    "qwen-2": FAMILIES["qwen-2"],  # its head is its table of embeddings, and it is published in bfloat16
}
LOGITS_DIFFERENCE_MAX = {torch.float32: 1e-5, torch.bfloat16: 0.02}


def prepare(root: Path, family: str = "llama-3", *, ranks: int = 1, env: Any = None, **config: Any) -> Work:
    """A training of adapters that has not begun."""
    settings = {Env.CHECKPOINT_EVERY_STEPS: str(SAVED_STEP), Env.CHECKPOINT_KEEP: "9", **(env or {})}
    work = Work(root, ranks=ranks, launched=ranks > 1, env=settings).write({**CONFIG, **config})
    make_folder(PUBLISHED[family], root / "input" / "mine")
    return work


def train(root: Path, family: str = "llama-3", **changes: Any) -> Work:
    """One that came to its end."""
    work = prepare(root, family, **changes)
    code, output = work.run()
    assert code == ExitCode.OK, output
    return work


def resume(root: Path, saved: Path, family: str = "llama-3", **changes: Any) -> Work:
    return prepare(root, family, env={Env.RESUME_FROM: str(saved)}, **changes)


def refusal(work: Work, code: ExitCode) -> str:
    """Why it was refused."""
    found, output = work.run()
    assert found == code, output
    return str(work.events("failed")[0]["message"])


def assert_goes_on(work: Work, like: Work) -> None:
    """From the saved step to the end, the same samples with the same losses."""
    steps = range(SAVED_STEP + 1, STEPS + 1)
    assert samples(work) == {step: samples(like)[step] for step in steps}
    assert losses(work) == pytest.approx({step: losses(like)[step] for step in steps}, abs=LOSS_DIFFERENCE_MAX)


def shard_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.distcp"))


@dataclass(frozen=True)
class Tuned:
    """A family's training on one rank."""

    family: Family
    work: Work

    @property
    def base(self) -> Path:
        return self.work.root / "input" / "mine"

    @property
    def saved(self) -> Path:
        return checkpoint_folder(self.work.checkpoints, SAVED_STEP)


@pytest.fixture(scope="module", params=PUBLISHED)
def tuned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    return Tuned(PUBLISHED[request.param], train(tmp_path_factory.mktemp(request.param), request.param))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    return Tuned(PUBLISHED["llama-3"], train(tmp_path_factory.mktemp("llama")))


@pytest.mark.filterwarnings("ignore")
def test_result_of_peft_and_the_merged_model_say_the_same(tuned: Tuned) -> None:
    merged, base = (
        AutoModelForCausalLM.from_pretrained(folder) for folder in (tuned.work.root / "output" / "model", tuned.base)
    )
    assert merged.dtype == base.dtype == tuned.family.dtype
    assert merged.config.to_diff_dict() == base.config.to_diff_dict()
    ids = torch.arange(2, 66)[None]
    with torch.no_grad():
        before = base.float()(ids).logits
        adapted: Any = PeftModel.from_pretrained(base, str(tuned.work.root / "output" / "adapter"))
        by_peft, by_merged = adapted(ids).logits, merged.float()(ids).logits
    assert float((by_peft - before).abs().max()) > 0.05, "it has learned"
    assert float((by_peft - by_merged).abs().max()) <= LOGITS_DIFFERENCE_MAX[tuned.family.dtype]


def test_what_has_no_adapter_leaves_as_it_came(tuned: Tuned) -> None:
    before, after = (
        load_file(folder / "model.safetensors") for folder in (tuned.base, tuned.work.root / "output" / "model")
    )
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "_proj.weight" in name}


def test_loss_falls_and_the_adapters_count_is_reported(tuned: Tuned) -> None:
    first, *_, last = (event["loss"] for event in tuned.work.events("evaluated"))
    assert last < first
    started = tuned.work.events("started")[0]
    adapters = load_file(tuned.work.root / "output" / "adapter" / "adapter_model.safetensors")
    assert started["trained_parameters"] == sum(tensor.numel() for tensor in adapters.values())
    assert started["trained_parameters"] < started["parameters"] / 5


@pytest.mark.parametrize("changes", [{}, {"strategy": "ddp", "activation_checkpointing": "full"}], ids=str)
def test_two_ranks_train_adapters_like_one(llama: Tuned, tmp_path: Path, changes: Any) -> None:
    work = train(tmp_path / "work", ranks=2, **changes)
    assert samples(work) == samples(llama.work)
    assert losses(work) == pytest.approx(losses(llama.work), abs=LOSS_DIFFERENCE_MAX)
    found, wanted = (
        load_file(each.root / "output" / "adapter" / "adapter_model.safetensors") for each in (work, llama.work)
    )
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    "strategy", ["fsdp2", *(pytest.param(other, marks=pytest.mark.soak) for other in ("hsdp", "ddp"))]
)
def test_two_ranks_with_their_base_in_bfloat16_train_nearly_the_same(
    llama: Tuned, tmp_path: Path, strategy: str
) -> None:
    work = train(tmp_path / "work", ranks=2, dtype="bfloat16", strategy=strategy)
    assert work.events("started")[0]["dtype"] == "bfloat16"
    assert losses(work) == pytest.approx(losses(llama.work), abs=BFLOAT16_DIFFERENCE_MAX)
    before, after = (
        load_file(folder / "model.safetensors")
        for folder in (work.root / "input" / "mine", work.root / "output" / "model")
    )
    untouched = "model.embed_tokens.weight"
    assert torch.equal(after[untouched], before[untouched]), "the result has the base as it was, not as it was rounded"


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_killed_training_of_adapters_goes_on_like_the_uninterrupted_one(
    llama: Tuned, tmp_path: Path, ranks: int
) -> None:
    """It was killed on the other number of ranks."""
    work = prepare(tmp_path / "killed", ranks=3 - ranks)
    process = work.start()
    saved = checkpoint_folder(work.checkpoints, SAVED_STEP)
    wait_until((saved / MANIFEST_NAME).is_file, process)
    kill_group(process)
    resumed = resume(tmp_path / "resumed", saved, ranks=ranks)
    code, output = resumed.run()
    assert code == ExitCode.OK, output
    assert resumed.events("resumed")[0]["from_world_size"] == 3 - ranks
    assert_goes_on(resumed, llama.work)


def test_adapters_go_on_under_another_strategy_with_the_same_losses(llama: Tuned, tmp_path: Path) -> None:
    work = resume(tmp_path / "work", llama.saved, ranks=2, strategy="ddp")
    code, output = work.run()
    assert code == ExitCode.OK, output
    assert_goes_on(work, llama.work)


def test_checkpoint_holds_adapters_and_their_moments_alone(llama: Tuned, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", lora=None)
    parameters = llama.work.events("started")[0]["parameters"]
    trained = llama.work.events("started")[0]["trained_parameters"]
    saved = shard_bytes(llama.saved)
    of_all = shard_bytes(checkpoint_folder(whole.checkpoints, SAVED_STEP))
    assert of_all > 12 * parameters
    assert saved > 12 * trained
    assert of_all - saved > 12 * (parameters - trained) / 2, "no weight of the base is in it"
    trainer = json.loads((llama.saved / "trainer.json").read_text())
    assert len(trainer["base"]) == 64
    assert "base" not in json.loads((checkpoint_folder(whole.checkpoints, SAVED_STEP) / "trainer.json").read_text())


def test_resume_over_another_base_is_refused(llama: Tuned, tmp_path: Path) -> None:
    work = resume(tmp_path / "work", llama.saved)
    path = work.root / "input" / "mine" / "model.safetensors"
    weights = load_file(path)
    weights["model.norm.weight"][0] += 1e-3
    save_file(weights, path, metadata={"format": "pt"})
    assert "not the one that the checkpoint's adapters were trained for" in refusal(work, ExitCode.BAD_CHECKPOINT)


@pytest.mark.parametrize(("lora", "said"), [(None, "is None"), ({"rank": 4, "alpha": 8}, "'alpha': 8.0")], ids=str)
def test_resume_with_other_adapters_is_refused(llama: Tuned, tmp_path: Path, lora: Any, said: str) -> None:
    message = refusal(resume(tmp_path / "work", llama.saved, lora=lora), ExitCode.BAD_CHECKPOINT)
    assert message.startswith("lora was {'rank': 4, 'alpha': 32.0, ")
    assert said in message


def test_unknown_modules_are_refused_with_those_that_there_are(tmp_path: Path) -> None:
    work = prepare(tmp_path / "work", ranks=2, lora={"targets": ["q_prj"]})
    message = refusal(work, ExitCode.BAD_CONFIG)
    assert "'q_prj', which is no linear module of the model before its head; it has q_proj, k_proj" in message


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    work = prepare(tmp_path / "work", model="micro-llama")
    assert "model 'micro-llama' has no safetensors" in refusal(work, ExitCode.BAD_DATA)


def test_adapters_with_dropout_learn_at_the_rate_of_adapters(tmp_path: Path) -> None:
    work = train(tmp_path / "work", learning_rate=None, lora={"dropout": 0.1, "targets": ["q_proj", "v_proj"]})
    assert work.events("step")[0]["learning_rate"] == 2e-4
    adapters = load_file(work.root / "output" / "adapter" / "adapter_model.safetensors")
    assert {name.split(".")[-3] for name in adapters} == {"q_proj", "v_proj"}
    shutil.rmtree(work.root)
