"""Answers are preferred to others: by the loss of the paper, however the ranks share the work, and after a kill."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from jobs.spec import kind_of, parse
from runtimes.contract import MANIFEST_NAME, TRAINER_FILE, Env, ExitCode, checkpoint_folder, write_manifest
from runtimes.job_files import JobFiles
from runtimes.train.data.documents import find_runs, read_records
from runtimes.train.optimizer import learning_rate_at
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, finish, losses, samples
from tests.integration.runtimes.train.families import FAMILIES, make_folder

EXAMPLES = Path(__file__).parents[4] / "examples"
EXAMPLE_SECONDS_MAX = 300.0  # half a minute on a core of its own
STEPS, SAVED_STEP = 8, 4
BETA = 0.3
DIFFERENCE_MAX = 1e-5
PAIRS = [
    {
        "prompt": f"Say {number}:",
        "chosen": f" yes, {number} it is" + " indeed" * (number % 3),
        "rejected": f" no {number}",
    }
    for number in range(23)
]
MESSAGES = [
    {
        "prompt": [{"role": "user", "content": pair["prompt"]}],
        "chosen": [{"role": "assistant", "content": pair["chosen"].strip()}],
        "rejected": [{"role": "assistant", "content": pair["rejected"].strip()}],
    }
    for pair in PAIRS
]
BEGUN_ALIKE = [
    {"chosen": pair["prompt"] + pair["chosen"], "rejected": pair["prompt"] + pair["rejected"]} for pair in MESSAGES
]
TOO_LONG = [{**pair, "prompt": "Say it, and say it again: " + pair["prompt"]} for pair in PAIRS]
CONFIG: dict[str, Any] = {
    **MICRO_CONFIG,
    "model": "mine",
    "data": ["pairs.jsonl"],
    "dpo": {"beta": BETA},
    "steps": STEPS,
    "sequence_length": 40,
    "global_batch_size": 5,
    "micro_batch_size": 2,
    "learning_rate": 1e-3,
    "warmup_steps": 2,
    "eval_fraction": 0.2,
    "evaluate_every": 0,
    "sample_every": -1,
}


def prepare(root: Path, *, ranks: int = 1, rows: Any = None, env: Any = None, **changes: Any) -> Work:
    """A training that has not begun, of a model with weights in float32."""
    settings = {Env.CHECKPOINT_EVERY_STEPS: str(SAVED_STEP), Env.CHECKPOINT_KEEP: "9", **(env or {})}
    work = Work(root, ranks=ranks, launched=ranks > 1, env=settings).write({**CONFIG, **changes})
    folder = make_folder(FAMILIES["llama-3"], root / "input" / "mine")
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).save_pretrained(folder)
    lines = "".join(json.dumps(row) + "\n" for row in rows or PAIRS)
    (root / "input" / "pairs.jsonl").write_text(lines)
    return work


def train(root: Path, **changes: Any) -> Work:
    """One that came to its end."""
    work = prepare(root, **changes)
    code, output = work.run()
    assert code == ExitCode.OK, output
    return work


def refusal(work: Work, code: ExitCode) -> str:
    """Why it was refused."""
    found, output = work.run()
    assert found == code, output
    return str(work.events("failed")[0]["message"])


def figures(work: Work) -> list[dict[str, float]]:
    return [event["metrics"] for event in work.events("step")]


def assert_same(work: Work, like: Work, steps: range) -> None:
    """The same pairs with the same losses and figures."""
    assert samples(work) == {step: samples(like)[step] for step in steps}
    assert losses(work) == pytest.approx({step: losses(like)[step] for step in steps}, abs=DIFFERENCE_MAX)
    of_both = zip(figures(work), figures(like)[steps.start - 1 :], strict=True)
    assert all(mine == pytest.approx(other, abs=DIFFERENCE_MAX) for mine, other in of_both)


def log_likelihood(model: Any, tokenizer: Any, prompt: str, answer: str) -> torch.Tensor:
    """log p(answer | prompt), by all logits at once."""
    ids = torch.tensor(tokenizer(prompt + answer + tokenizer.eos_token)["input_ids"])[None]
    asked = len(tokenizer(prompt)["input_ids"])
    found = functional.log_softmax(model(ids).logits[0, :-1], dim=-1)
    return found.gather(1, ids[0, 1:, None])[asked - 1 :].sum()


def plain_dpo(work: Work) -> dict[int, float]:
    """The losses of the same training, by one process, from equation 7 of the paper (Rafailov et al. 2023)."""
    folder = work.root / "input" / "mine"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model, first = (AutoModelForCausalLM.from_pretrained(folder).eval() for _ in range(2))
    runs = find_runs(("pairs.jsonl",), JobFiles(work.root / "input"), CONFIG["seed"])
    pairs: list[Any] = [record.value for record in read_records(runs)]
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
        ],
        betas=(0.9, 0.95),
    )
    schedule: Any = SimpleNamespace(peak_rate=CONFIG["learning_rate"], warmup_steps=2, steps_total=STEPS)
    found = {}
    for step in range(1, STEPS + 1):
        loss = torch.zeros(())
        for pair in (pairs[number] for number in samples(work)[step]):
            ratios = []
            for answer in (pair["chosen"], pair["rejected"]):
                with torch.no_grad():
                    reference = log_likelihood(first, tokenizer, pair["prompt"], answer)
                ratios.append(log_likelihood(model, tokenizer, pair["prompt"], answer) - reference)
            loss = loss - functional.logsigmoid(BETA * (ratios[0] - ratios[1])) / CONFIG["global_batch_size"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step - 1, schedule)
        optimizer.step()
        optimizer.zero_grad()
        found[step] = float(loss)
    return found


@pytest.fixture(scope="module")
def preferred(tmp_path_factory: pytest.TempPathFactory) -> Work:
    return train(tmp_path_factory.mktemp("preferred"))


@pytest.mark.filterwarnings("ignore")
def test_losses_are_those_of_the_paper(preferred: Work) -> None:
    found = losses(preferred)
    assert found == pytest.approx(plain_dpo(preferred), abs=DIFFERENCE_MAX)
    assert found[1] == pytest.approx(0.6931472, abs=1e-6), "the model is its own reference at first"
    assert found[STEPS] < 0.5


def test_events_say_how_well_answers_are_told_apart(preferred: Work) -> None:
    first, last = preferred.events("evaluated")
    assert first["metrics"] == pytest.approx(dict.fromkeys(first["metrics"], 0), abs=1e-6)
    assert last["loss"] < first["loss"]
    assert last["metrics"]["reward_accuracy"] == 1
    of_step = figures(preferred)[-1]
    assert of_step["reward_margin"] == pytest.approx(of_step["reward_chosen"] - of_step["reward_rejected"], abs=1e-5)
    assert preferred.events("started")[0]["train_sequences"] == 18


@pytest.mark.parametrize(
    ("ranks", "changes"),
    [
        (1, {"micro_batch_size": 5}),
        (2, {}),
        (2, {"strategy": "ddp"}),
        (2, {"rows": BEGUN_ALIKE}),
        (1, {"strategy": "hsdp", "activation_checkpointing": "full"}),
    ],
)
def test_pairs_train_alike_however_they_are_shared(
    preferred: Work, ranks: int, changes: dict[str, Any], tmp_path: Path
) -> None:
    like = train(tmp_path / "like", rows=MESSAGES) if "rows" in changes else preferred
    assert_same(train(tmp_path / "shared", ranks=ranks, **changes), like, range(1, STEPS + 1))


def test_references_leave_no_whole_weights_to_average(preferred: Work, tmp_path: Path) -> None:
    """They come from a forward pass alone, after which the root's parameters would still be gathered."""
    further: dict[str, Any] = {"ema": 0.9, "evaluate_every": 4, "early_stop": {"patience": 9, "export_best": True}}
    work = train(tmp_path / "averaged", ranks=2, strategy="fsdp2", **further)
    assert_same(work, preferred, range(1, STEPS + 1))
    assert work.events("exported")[0]["best_step"] == STEPS


@pytest.mark.parametrize("ranks", [1, 2])
def test_resume_goes_on_with_its_first_references(preferred: Work, ranks: int, tmp_path: Path) -> None:
    saved = checkpoint_folder(preferred.checkpoints, SAVED_STEP)
    work = train(tmp_path / "resumed", ranks=ranks, env={Env.RESUME_FROM: str(saved)})
    assert_same(work, preferred, range(SAVED_STEP + 1, STEPS + 1))


def test_resume_from_other_references_is_refused(preferred: Work, tmp_path: Path) -> None:
    saved = checkpoint_folder(tmp_path / "given", SAVED_STEP)
    shutil.copytree(checkpoint_folder(preferred.checkpoints, SAVED_STEP), saved)
    trainer = json.loads((saved / TRAINER_FILE).read_text())
    (saved / TRAINER_FILE).write_text(json.dumps({**trainer, "references": "0" * 64}))
    (saved / MANIFEST_NAME).unlink()
    write_manifest(saved, step=SAVED_STEP, world_size=1, node_rank=0, nodes=1)
    work = prepare(tmp_path / "refused", env={Env.RESUME_FROM: str(saved)})
    assert "has other references than its training began with" in refusal(work, ExitCode.BAD_CHECKPOINT)


def test_resume_with_another_beta_is_refused(preferred: Work, tmp_path: Path) -> None:
    saved = checkpoint_folder(preferred.checkpoints, SAVED_STEP)
    work = prepare(tmp_path / "refused", env={Env.RESUME_FROM: str(saved)}, dpo={})
    assert "dpo was {'beta': 0.3} in the checkpoint" in refusal(work, ExitCode.BAD_CHECKPOINT)


def test_adapters_are_compared_with_their_base(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"lora": {"rank": 4}, "learning_rate": 1e-2}
    one, two = train(tmp_path / "one", **changes), train(tmp_path / "two", ranks=2, **changes)
    assert losses(one)[1] == pytest.approx(0.6931472, abs=1e-6)
    assert losses(one)[STEPS] < 0.5
    assert_same(two, one, range(1, STEPS + 1))
    saved = checkpoint_folder(one.checkpoints, SAVED_STEP)
    resumed = train(tmp_path / "resumed", env={Env.RESUME_FROM: str(saved)}, **changes)
    assert_same(resumed, one, range(SAVED_STEP + 1, STEPS + 1))


def test_the_example_is_learned(tmp_path: Path) -> None:
    spec = parse((EXAMPLES / "train-preferences.yaml").read_text())
    work = Work(tmp_path, ranks=1, launched=False).write(kind_of(spec).config(spec))
    shutil.copy(EXAMPLES / "preferences.jsonl", work.root / "input")
    code, output = finish(work.start(), seconds=EXAMPLE_SECONDS_MAX)
    assert code == ExitCode.OK, output
    found = losses(work)
    assert found[max(found)] < 0.4 < 0.69 < found[1]
    assert figures(work)[-1]["reward_accuracy"] == 1


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        ([*PAIRS, {"text": "none"}], {}, "pairs.jsonl line 24 is no pair of answers"),
        (
            [*PAIRS, {**PAIRS[0], "chosen": 5}],
            {},
            "pairs.jsonl line 24: prompt, chosen and rejected must be three texts",
        ),
        (PAIRS, {"dpo": None}, "is a pair of answers, chosen and rejected: name dpo in the train section"),
        (TOO_LONG, {"sequence_length": 8}, "the data has 0 pairs of answers within sequences of 8 tokens"),
    ],
)
def test_data_without_pairs_is_refused_by_its_line(
    rows: list[Any], changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    assert message in refusal(prepare(tmp_path / "bad", rows=rows, **changes), ExitCode.BAD_DATA)
