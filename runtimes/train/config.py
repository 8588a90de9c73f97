"""The configuration of a training: the keys of a job file's `train` section. Standard library only, no torch.

model               a shipped model (`tiny-llama`), a folder under the inputs, or a Hugging Face hub id, id@revision;
                    lent/LABEL/..., as of `data` and `chat_template`, is in a shared host folder (job_files.py)
data                `python-docs`, or files under the inputs: one path or a list; .txt, .md, .jsonl, .parquet, or a
                    folder of these; * works. Of conversations (data/conversations.py) the answers are learned.
                    s3://bucket/..., of the same kinds, is fetched first (data/s3.py)
chat_template       a file under the inputs, in Jinja, that writes conversations; null: the model's, or data/chat.jinja
train_on_inputs     learn the questions of conversations, too
packing             put several conversations into one sequence; none sees the others
eval_fraction       part of the tokens kept for evaluation
vocabulary_size     of the tokenizer trained on the data; null: the model's. Unused where the model has a tokenizer
sequence_length     tokens a sequence; null: SHIPPED_LENGTH for a shipped model, else OTHER_LENGTH, or what the model
                    takes at most
global_batch_size   sequences a step, over all ranks: the same on any number of ranks; with dpo pairs of them
micro_batch_size    sequences, with dpo pairs, that a rank computes at once; null: its whole share
learning_rate       peak, reached after warmup_steps, then cosine down to a tenth; null: NEW_WEIGHTS_RATE for a new
                    model, FINE_TUNING_RATE for one that has weights, ADAPTER_RATE for its adapters; with dpo
                    PREFERENCE_RATE for one that has weights, PREFERENCE_ADAPTER_RATE for its adapters
warmup_steps, weight_decay, betas, gradient_clip
dtype               `auto` (bfloat16 on a GPU that has it, else float32), `float32`, `bfloat16`
strategy            how the ranks share the work: `fsdp2` (model sharded over them), `hsdp` (over those of a node),
                    or `ddp` (whole on each)
shares              how the ranks share out a batch: `even`, or `measured`, as many sequences as each one's speed allows
activation_checkpointing  what the backward pass computes anew instead of keeping it: `none`, `selective`, `full`
compile             compile each decoder block (torch.compile): faster steps on a GPU, after a minute
offload             what lies in the node's memory in place of the GPU's: `none`, or `all` of weights, gradients and
                    optimizer state between their uses; with strategies that shard the model
lora                null: train every weight. A mapping, which may be empty: train adapters beside the model's weights.
                    Its keys: `rank` of the adapters; `alpha`, they count alpha / rank times; `dropout` of what they are
                    given; `targets`, the linear modules that have one: `all-linear`, or names or ends of names
ema                 null, or the decay of an average of the weights over the steps, such as 0.999. The average is
                    evaluated, sampled from and exported
early_stop          null, or a mapping, which may be empty: end where the evaluation loss falls no more. Its keys:
                    `patience`, so many evaluations in a row without a better one; `min_delta`, a loss is better where
                    it is lower by more than this; `export_best`, export the weights of the best evaluation
deterministic       compute by algorithms alone that give the same bits each time
profile             null, or a mapping, which may be empty: a trace of each rank. Its keys: `first_step`, the first step
                    that is traced, counted from where an attempt begins; `steps`, how many
quantize            null, or `nf4`: keep frozen weights of linear modules in 4 bits (QLoRA); with lora alone
dpo                 null: learn the answers that the data has. A mapping, which may be empty: learn to prefer one of
                    two answers to the other (objectives/dpo.py); the data are pairs, and a batch counts them. Its key:
                    `beta`, how strongly the model is held to what it was at first
seed                of the initial weights, the order of the data and the sampling
steps | tokens      how much to train: one of the two; filled from the job's `work`
evaluate_every      steps between evaluations (also at step 0 and at the end); 0: only those two
sample_every        steps between samples; 0: only at the end; -1: never
sample_prompt       what the samples begin with
log_every           steps between step events
log_samples         write the ids of every step's sequences as `samples` events, in the order of the batch
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runtimes.checking import Check, Unreadable, boolean, check_keys, integer, one_of, read_json
from runtimes.checking import number as _number
from runtimes.checking import section as _section
from runtimes.contract import is_s3_address, s3_address_mistake, shipped_models
from runtimes.train.errors import BadConfig
from runtimes.train.strategies.registry import DEFAULT_STRATEGY, check_strategy

SEQUENCE_LENGTH_MIN = 8
SEQUENCE_LENGTH_MAX = 1 << 20
SHIPPED_LENGTH = 128
OTHER_LENGTH = 1024
BATCH_SIZE_MAX = 1 << 16
LOGGED_BATCH_SIZE_MAX = 4096  # its ids must fit into one event line
STEPS_MAX = 10**9
TOKENS_MAX = 10**15
PROMPT_CHARACTERS_MAX = 2000
FILES_MAX = 1000
NEW_WEIGHTS_RATE = 3e-3
FINE_TUNING_RATE = 2e-5
ADAPTER_RATE = 2e-4
PREFERENCE_RATE = 1e-6
PREFERENCE_ADAPTER_RATE = 1e-5
BETA_MAX = 100.0
ALL_LINEAR = "all-linear"  # in place of names: every linear module but the head
RANK_MAX = 1024
ALPHA_MAX = 65536
TARGETS_MAX = 256
TARGET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")  # a module's name, or its end
EMA_MAX = 0.999999
PATIENCE_MAX = 10_000
MIN_DELTA_MAX = 1000
FIRST_STEP_MAX = 10**9
PROFILED_STEPS_MAX = 20  # a trace has some MB a step
DTYPES = ("auto", "float32", "bfloat16")
SHARES = ("even", "measured")
QUANTIZATIONS = ("nf4",)
OFFLOADS = ("none", "all")
OFFLOADING_STRATEGIES = ("fsdp2", "hsdp")  # the others keep the whole model where they compute
CHECKPOINTINGS = ("none", "selective", "full")


@dataclass(frozen=True)
class Lora:
    """Adapters to train in place of the model's weights: see adapters.py."""

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    targets: tuple[str, ...] = (ALL_LINEAR,)


@dataclass(frozen=True)
class EarlyStop:
    """When a training ends before its last step: callbacks/early_stop.py."""

    patience: int = 3
    min_delta: float = 0.0
    export_best: bool = False


@dataclass(frozen=True)
class Profile:
    """Which steps are traced, counted from 1 where an attempt begins: callbacks/profile.py."""

    first_step: int = 10
    steps: int = 3


@dataclass(frozen=True)
class Dpo:
    """Learning to prefer one of two answers: see objectives/dpo.py."""

    beta: float = 0.1


@dataclass(frozen=True)
class TrainConfig:
    """One training, checked: every field is in range. Made by `parse_config`."""

    model: str = "tiny-llama"
    data: tuple[str, ...] = ("python-docs",)
    eval_fraction: float = 0.05
    vocabulary_size: int | None = None
    chat_template: str | None = None
    train_on_inputs: bool = False
    packing: bool = True
    sequence_length: int | None = None  # of a training that runs: a number (`settled`)
    global_batch_size: int = 16
    micro_batch_size: int | None = None
    learning_rate: float | None = None  # of a training that runs: a number (`settled`)
    warmup_steps: int = 20
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    gradient_clip: float = 1.0
    dtype: str = "auto"
    strategy: str = DEFAULT_STRATEGY
    shares: str = "even"
    activation_checkpointing: str = "none"
    compile: bool = False
    offload: str = "none"
    lora: Lora | None = None
    ema: float | None = None
    early_stop: EarlyStop | None = None
    deterministic: bool = False
    profile: Profile | None = None
    quantize: str | None = None
    dpo: Dpo | None = None
    seed: int = 0
    steps: int | None = None
    tokens: int | None = None
    evaluate_every: int = 100
    sample_every: int = 0
    sample_prompt: str = "The "
    log_every: int = 1
    log_samples: bool = False

    @property
    def peak_rate(self) -> float:
        """The learning rate of a training that runs; raises ValueError before `settled` has chosen it."""
        if self.learning_rate is None:
            raise ValueError("the learning rate is still open")
        return self.learning_rate

    @property
    def length(self) -> int:
        """Tokens a sequence of a training that runs; raises ValueError before `settled` has chosen it."""
        if self.sequence_length is None:
            raise ValueError("the sequence's length is still open")
        return self.sequence_length

    @property
    def tokens_per_step(self) -> int:
        """Tokens trained on in one step, over all ranks."""
        return self.global_batch_size * self.rows_per_sample * self.length

    @property
    def rows_per_sample(self) -> int:
        """Sequences that a batch counts as one: a pair of answers has two."""
        return 1 if self.dpo is None else 2

    @property
    def steps_total(self) -> int:
        """Steps of the whole training; a number of tokens is rounded up to whole steps."""
        if self.steps is not None:
            return self.steps
        return math.ceil((self.tokens or 0) / self.tokens_per_step)


def settled(config: TrainConfig, *, has_weights: bool, is_shipped: bool, length_max: int | None) -> TrainConfig:
    """The same with what was left open, by the model. `length_max`: tokens that it takes, where it says so."""
    rate, length = config.learning_rate, config.sequence_length
    if rate is None:  # trained weights are soon spoilt by what suits new ones
        trained = PREFERENCE_RATE if config.dpo is not None else FINE_TUNING_RATE
        rate = trained if has_weights else NEW_WEIGHTS_RATE
        if config.lora is not None:
            rate = PREFERENCE_ADAPTER_RATE if config.dpo is not None else ADAPTER_RATE
    if length is None:
        length = SHIPPED_LENGTH if is_shipped else OTHER_LENGTH
        length = max(SEQUENCE_LENGTH_MIN, min(length, length_max or length))
    return replace(config, learning_rate=rate, sequence_length=length)


def read_config(path: Path) -> TrainConfig:
    """The checked configuration in a JSON file; raises BadConfig with every mistake in it."""
    try:
        raw = read_json(path)
    except Unreadable as error:
        raise BadConfig([str(error)]) from error
    return parse_config(raw)


def parse_config(raw: object) -> TrainConfig:
    """The checked configuration; raises BadConfig that lists every mistake, unknown keys with the nearest known one."""
    values, mistakes = check_keys(raw, CHECKS)
    if isinstance(raw, dict):
        mistakes += _conflicts(values, raw)
    if mistakes:
        raise BadConfig(mistakes)
    return TrainConfig(**values)


def _conflicts(values: dict[str, Any], raw: dict[str, Any]) -> list[str]:
    """Mistakes between keys that are each valid."""
    mistakes = []
    if all(raw.get(key) is None for key in ("steps", "tokens")):
        mistakes.append("one of steps and tokens must be given")
    if all(raw.get(key) is not None for key in ("steps", "tokens")):
        mistakes.append("only one of steps and tokens can be given")
    batch = values.get("global_batch_size", TrainConfig.global_batch_size)
    if values.get("log_samples") and batch > LOGGED_BATCH_SIZE_MAX:
        mistakes.append(f"log_samples needs a global_batch_size of at most {LOGGED_BATCH_SIZE_MAX}, got {batch}")
    if values.get("early_stop") is not None and values.get("evaluate_every") == 0:
        mistakes.append("early_stop needs evaluations: take an evaluate_every of 1 or more")
    if values.get("deterministic") and values.get("shares") == "measured":
        mistakes.append("deterministic needs shares: even, as measured ones are others each time")
    strategy = values.get("strategy", TrainConfig.strategy)
    if values.get("offload", "none") != "none" and strategy not in OFFLOADING_STRATEGIES:
        mistakes.append(f"offload needs strategy {' or '.join(OFFLOADING_STRATEGIES)}, got {strategy}")
    model = values.get("model", TrainConfig.model)
    if values.get("lora") is not None and model in shipped_models():
        mistakes.append(f"lora needs a model with weights, {model} is shipped without: take a folder or a hub id")
    if values.get("quantize") is not None and values.get("lora") is None:
        mistakes.append("quantize keeps frozen weights in 4 bits, and without lora none is frozen: add lora: {}")
    if values.get("quantize") is not None and values.get("compile"):
        mistakes.append("quantize and compile cannot be used together: leave one of them out")
    if values.get("dpo") is not None and values.get("train_on_inputs"):
        mistakes.append("dpo compares answers alone: leave train_on_inputs false")
    return mistakes


def _optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _text(characters_max: int, *, empty: bool = False) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str) or len(value) > characters_max or not (value or empty):
            raise ValueError(f"must be a text of {0 if empty else 1} to {characters_max} characters")
        return value

    return check


def _files(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not 1 <= len(names) <= FILES_MAX:
        raise ValueError("must be python-docs, a path or a list of paths")
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError("must hold paths only")
    for name in names:
        if is_s3_address(name) and (mistake := s3_address_mistake(name)) is not None:
            raise ValueError(f"must hold paths and addresses of S3 only: {name!r:.200} {mistake}")
    return tuple(names)


def _lora(value: Any) -> Lora:
    values, mistakes = check_keys(value, LORA_CHECKS)
    if mistakes:
        raise ValueError("has mistakes: " + "; ".join(mistakes))
    return Lora(**values)


def _dpo(value: Any) -> Dpo:
    values, mistakes = check_keys(value, DPO_CHECKS)
    if mistakes:
        raise ValueError("has mistakes: " + "; ".join(mistakes))
    return Dpo(**values)


def _targets(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not 1 <= len(names) <= TARGETS_MAX:
        raise ValueError(f"must be {ALL_LINEAR}, a module's name or a list of 1 to {TARGETS_MAX} of them")
    if not all(isinstance(name, str) and TARGET.fullmatch(name) for name in names):
        raise ValueError("must hold names of modules only: letters, digits, _ . and -")
    return tuple(names)


def _betas(value: Any) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError("must be two numbers")
    check = _number(0, 0.99999)
    return check(value[0]), check(value[1])


LORA_CHECKS: dict[str, Check] = {
    "rank": integer(1, RANK_MAX),
    "alpha": _number(0, ALPHA_MAX, above=True),
    "dropout": _number(0, 0.99),
    "targets": _targets,
}
EARLY_STOP_CHECKS: dict[str, Check] = {
    "patience": integer(1, PATIENCE_MAX),
    "min_delta": _number(0, MIN_DELTA_MAX),
    "export_best": boolean,
}
PROFILE_CHECKS: dict[str, Check] = {
    "first_step": integer(1, FIRST_STEP_MAX),
    "steps": integer(1, PROFILED_STEPS_MAX),
}
DPO_CHECKS: dict[str, Check] = {"beta": _number(0, BETA_MAX, above=True)}
CHECKS: dict[str, Check] = {
    "model": _text(300),
    "data": _files,
    "eval_fraction": _number(0, 0.5, above=True),
    "vocabulary_size": integer(300, 1_000_000, optional=True),
    "chat_template": _optional(_text(300)),
    "train_on_inputs": boolean,
    "packing": boolean,
    "sequence_length": integer(SEQUENCE_LENGTH_MIN, SEQUENCE_LENGTH_MAX, optional=True),
    "global_batch_size": integer(1, BATCH_SIZE_MAX),
    "micro_batch_size": integer(1, BATCH_SIZE_MAX, optional=True),
    "learning_rate": _optional(_number(0, 10, above=True)),
    "warmup_steps": integer(0, STEPS_MAX),
    "weight_decay": _number(0, 10),
    "betas": _betas,
    "gradient_clip": _number(0, 1e6, above=True),
    "dtype": one_of(*DTYPES),
    "strategy": check_strategy,
    "shares": one_of(*SHARES),
    "activation_checkpointing": one_of(*CHECKPOINTINGS),
    "compile": boolean,
    "offload": one_of(*OFFLOADS),
    "lora": _optional(_lora),
    "ema": _optional(_number(0, EMA_MAX, above=True)),
    "early_stop": _section(EarlyStop, EARLY_STOP_CHECKS),
    "deterministic": boolean,
    "profile": _section(Profile, PROFILE_CHECKS),
    "quantize": _optional(one_of(*QUANTIZATIONS)),
    "dpo": _optional(_dpo),
    "seed": integer(0, 2**63 - 1),
    "steps": integer(1, STEPS_MAX, optional=True),
    "tokens": integer(1, TOKENS_MAX, optional=True),
    "evaluate_every": integer(0, STEPS_MAX),
    "sample_every": integer(-1, STEPS_MAX),
    "sample_prompt": _text(PROMPT_CHARACTERS_MAX, empty=True),
    "log_every": integer(1, STEPS_MAX),
    "log_samples": boolean,
}
