"""Tiny models with random weights, and work folders of evaluations over the tasks of the examples."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from tests.integration.runtimes.programs import MICRO_MODEL, Work

EXAMPLES = Path(__file__).parents[4] / "examples" / "eval-tasks"
RESULTS = ("results.json", "samples.jsonl", "report.html")
CONFIG: dict[str, Any] = {"models": ["base", "tuned"], "tasks": ["tasks"], "num_fewshot": 1}


def make_model(folder: Path, *, seed: int, dtype: str = "float32") -> None:
    """A model of two layers, drawn from `seed`, with a tokenizer of 320 tokens, as transformers saves both."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    make: Any = AutoModelForCausalLM.from_config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = AutoConfig.for_model(**MICRO_MODEL, initializer_range=0.5)
        make(config, dtype=getattr(torch, dtype)).save_pretrained(folder)
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator([topics[key] for key in sorted(topics)[:5]], 320, special_tokens=["<end>"])
    saved = PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, eos_token="<end>")
    saved.save_pretrained(folder)


def make_work(root: Path, models: Path, /, *, env: dict[str, str] | None = None, **changes: Any) -> Work:
    """A work folder with both models and the examples' tasks below input/."""
    inputs = root / "input"
    for model in models.iterdir():
        shutil.copytree(model, inputs / model.name)
    shutil.copytree(EXAMPLES, inputs / "tasks")
    (root / "config.json").write_text(json.dumps(CONFIG | changes))
    return Work(root, ranks=1, env=env or {}, launched=False, module="runtimes.evaluate")


def written(work: Work) -> dict[str, bytes]:
    """The files that must be the same whatever happened on the way."""
    return {name: (work.root / "output" / name).read_bytes() for name in RESULTS}


def counts(work: Work) -> tuple[int, int]:
    """Requests that were computed and reused, by run.json, which the last event must confirm."""
    body = json.loads((work.root / "output" / "run.json").read_text())
    (finished,) = work.events("finished")[-1:]
    assert (finished["computed"], finished["reused"]) == (body["computed"], body["reused"])
    return body["computed"], body["reused"]
