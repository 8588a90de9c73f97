"""Everything before the first step, in order: tokenizer, data, model, and the state of a checkpoint if there is one."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tokenizers import Tokenizer

from runtimes.contract import PINNED_SETTINGS, TOKENIZER_FILE, EventKind, EventWriter, is_s3_address
from runtimes.train.adapters import add_adapters
from runtimes.train.blocks import prepare_blocks, prepare_compiler
from runtimes.train.callbacks.copies import Copies
from runtimes.train.callbacks.early_stop import EarlyStopper
from runtimes.train.checkpoint import Checkpointer, read_tokenizer, read_trainer, remove_partial
from runtimes.train.config import TrainConfig
from runtimes.train.container import Container
from runtimes.train.data.conversations import text_of
from runtimes.train.data.documents import find_runs, read_records
from runtimes.train.data.kept import find_tokenizer, keep_tokenizer
from runtimes.train.data.keys import tokenizer_key
from runtimes.train.data.prepare import prepare_corpus
from runtimes.train.data.s3 import S3Data
from runtimes.train.data.tokenizer import PADDING, end_of_text_id, is_trained, load_tokenizer, train_tokenizer
from runtimes.train.errors import BadCheckpoint, BadConfig, BadData, TrainError
from runtimes.train.export import kept_files
from runtimes.train.loss import install_loss
from runtimes.train.model import ModelSource, build_model, count_parameters, find_model, flops_per_token
from runtimes.train.objectives.registry import make_objective
from runtimes.train.optimizer import make_optimizer
from runtimes.train.parallel import Progress, Ranks, gather_results, print_line, wait_for_results
from runtimes.train.preparing import report_prepared
from runtimes.train.quantization.linear import quantized_units
from runtimes.train.quantization.nf4 import check_library
from runtimes.train.report import report_started
from runtimes.train.sample import encode_prompt
from runtimes.train.shares import BlockClock, Shares
from runtimes.train.strategies.base import PLAIN_NAMES, Strategy
from runtimes.train.training import Text, Training
from runtimes.train.weights import base_digest, filled_units

DATA_MAY_CHANGE = "the objects on S3 have changed since, which must stay as they are while a job runs"


def find_source(config: TrainConfig, container: Container, resume_from: Path | None) -> ModelSource:
    """The model; raises BadData where there is none, a TrainError where an attempt before this one had it.

    Then neither the input nor the checkpoint is to blame: a hub that is away for an hour would condemn them all. Of a
    shared host folder it is BadData all the same: this node's holds something else than the one's before it.
    """
    try:
        source = find_model(config.model, container.files)
        if config.lora is not None and not source.has_weights:
            raise BadData(f"lora trains adapters of a model with weights; model {config.model!r} has no safetensors")
        kept_files(source)  # else the last thing that a training does would fail it
    except BadData as error:
        if resume_from is None or container.files.place_of(config.model).label is not None:
            raise
        raise TrainError(str(error)) from error
    return source


def check_base(config: TrainConfig, ranks: Ranks, source: ModelSource) -> str | None:
    """Digest of the model that adapters are trained for, the same on every node; None where all weights are trained.

    Raises BadData where nodes have different ones.
    """
    if config.lora is None:
        return None
    found = wait_for_results(ranks, lambda _: base_digest(source) if ranks.is_node_leader else None, "base model")
    digests = {digest for digest in found if digest is not None}
    if len(digests) != 1:
        raise BadData(f"the nodes were given different models: name {config.model!r} by its commit, id@COMMIT")
    return digests.pop()


def prepare_text(
    config: TrainConfig,
    container: Container,
    ranks: Ranks,
    source: ModelSource,
    resume_from: Path | None,
    *,
    stop: threading.Event | None = None,
) -> Text:
    """Tokenizer and tokens, the same on every rank; fits the model's configuration to the tokenizer.

    Raises Stopped where `stop` is set while data on S3 are fetched.
    """
    s3 = None
    if any(is_s3_address(name) for name in config.data):
        is_resumed, say = resume_from is not None, partial(print_line, ranks)
        s3 = S3Data(config.data, container.work_dir, is_resumed=is_resumed, say=say, stop=stop)
    tokenizer = prepare_tokenizer(config, container, ranks, source, resume_from, s3=s3)
    try:
        end_id = fit_model(config, source, tokenizer)
        if config.sample_every >= 0:
            encode_prompt(tokenizer, config.sample_prompt)  # else the last thing that a training does would fail it
        corpus, template = prepare_corpus(config, container, ranks, source, tokenizer=tokenizer, end_id=end_id, s3=s3)
        # The leader has listed the objects: S3 is not asked again.
        return Text(tokenizer, end_id, corpus, template, s3.digest if s3 is not None and ranks.is_leader else None)
    except BadData as error:
        if resume_from is None or _own_tokenizer(source) is not None:
            raise
        # The data were right for an attempt before: with this tokenizer they are not.
        changed = f", or {DATA_MAY_CHANGE}" if s3 is not None else ""
        raise BadCheckpoint(f"checkpoint {resume_from.name} has another tokenizer{changed}: {error}") from error


def prepare_tokenizer(
    config: TrainConfig,
    container: Container,
    ranks: Ranks,
    source: ModelSource,
    resume_from: Path | None,
    *,
    s3: S3Data | None = None,
) -> Tokenizer:
    """The model's tokenizer, else the checkpoint's, else one that rank 0 trains on the data.

    Raises BadData for a model with weights and without a tokenizer: its tokens would be others than it was trained on.
    """

    def find_or_train(progress: Progress) -> str:
        if not ranks.is_leader:
            return ""
        if s3 is not None and resume_from is not None:
            _check_pins(s3, resume_from, progress)
        known, size = _own_tokenizer(source), config.vocabulary_size or source.config.vocab_size
        if known is None and source.has_weights:
            raise BadData(
                f"model {config.model!r} has weights and no {TOKENIZER_FILE}: a new tokenizer would not fit them. "
                "Make one where the model comes from: AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)"
            )
        if known is None and resume_from is not None:
            known = read_tokenizer(resume_from)
            if known is not None and not is_trained(known, size):
                raise BadCheckpoint(f"checkpoint {resume_from.name} has a tokenizer that no training makes")
        if known is None:
            known = _find_or_train(config, container, size, progress, ranks.node_events, s3=s3)
        return str(known.to_str())

    return Tokenizer.from_str(wait_for_results(ranks, find_or_train, "tokenizer")[0])


def _check_pins(s3: S3Data, resume_from: Path, progress: Progress) -> None:
    """Raises BadCheckpoint where the objects are others than the checkpoint's, before anything of them is fetched."""
    progress.text = "listing the objects on S3"
    saved = read_trainer(resume_from).get("s3")  # checkpoints from before there were digests of pins have none
    if saved is not None and saved != s3.digest:
        raise BadCheckpoint(f"the data is not what the checkpoint was trained on: {DATA_MAY_CHANGE}")


def _find_or_train(
    config: TrainConfig,
    container: Container,
    size: int,
    progress: Progress,
    events: EventWriter,
    *,
    s3: S3Data | None,
) -> Tokenizer:
    """A tokenizer of at most `size` tokens for the data: the node's cache has it, or it is made and kept there."""
    cache = container.cache
    progress.text = "looking for it in the cache of this node"
    key = tokenizer_key(config, container.files, size, s3) if cache.is_there else ""
    began = time.monotonic()
    if key and (found := find_tokenizer(cache, key, size)) is not None:
        report_prepared(events, "tokenizer", time.monotonic() - began, found=True)
        return found
    fetched = s3.fetch(progress) if s3 is not None else {}
    progress.text = "training a tokenizer"
    runs = find_runs(config.data, container.files, config.seed, fetched)
    tokenizer = train_tokenizer((text_of(record) for record in read_records(runs)), size)
    seconds = time.monotonic() - began
    if key:
        keep_tokenizer(cache, key, tokenizer, seconds=seconds)
        report_prepared(events, "tokenizer", seconds, found=False)
    return tokenizer


def _own_tokenizer(source: ModelSource) -> Tokenizer | None:
    found = load_tokenizer(source.folder) if source.folder else None
    if found is not None:  # some are kept with settings that cut or fill each text
        found.no_truncation()
        found.no_padding()
    return found


def fit_model(config: TrainConfig, source: ModelSource, tokenizer: Tokenizer) -> int:
    """Fit a new model's vocabulary and special ids to the tokenizer, check those of one with weights; the end's id."""
    vocabulary = tokenizer.get_vocab_size()
    end_id = end_of_text_id(tokenizer, source.folder, source.config.eos_token_id)
    if not source.has_weights:
        source.config.vocab_size = max(config.vocabulary_size or source.config.vocab_size, vocabulary)
        source.config.bos_token_id = source.config.eos_token_id = end_id
        source.config.pad_token_id = tokenizer.token_to_id(PADDING)
    if vocabulary > source.config.vocab_size:
        raise BadData(f"the tokenizer has {vocabulary} tokens, the model {source.config.vocab_size}")
    longest = getattr(source.config, "max_position_embeddings", None) or config.length
    if config.length > longest:
        raise BadConfig([f"sequence_length {config.length} is longer than the model's {longest} positions"])
    return end_id


def prepare_training(
    config: TrainConfig,
    container: Container,
    strategy: Strategy,
    ranks: Ranks,
    *,
    events: EventWriter,
    source: ModelSource,
    base: str | None,
    text: Text,
    resume_from: Path | None,
) -> Training:
    """Build the model, wrap it as the strategy requires, report the start, and load the checkpoint if there is one."""
    dtype, is_resumed = choose_dtype(config.dtype, ranks.device), resume_from is not None
    # 1. The model, of which nothing is in memory yet.
    model = build_model(source)
    parameters = count_parameters(model)
    if config.lora is not None:
        add_adapters(model, config.lora, dtype)
    flops = flops_per_token(model, config.length)
    _prepare_computation(model, config, container, ranks)
    clock = BlockClock(model, ranks.device) if config.shares == "measured" else None
    # 2. Its weights, each rank's part of them.
    model = _fill_and_wrap(model, source, config, strategy, ranks, dtype=dtype, is_resumed=is_resumed)
    optimizer = make_optimizer(model, config)
    if source.has_weights and not is_resumed and not strategy.is_finite(model, optimizer, ranks):
        raise BadData(f"model {config.model!r} has weights that are not finite")
    # 3. What is computed with it.
    objective = make_objective(config, model, text.corpus, ranks, work_dir=container.work_dir, is_resumed=is_resumed)
    strategy.drop_gathered(model)  # by references: what follows is to see this rank's own part of each parameter
    training = Training(
        config,
        strategy,
        ranks,
        events,
        source,
        text,
        model,
        optimizer,
        Checkpointer(container, ranks, events),
        Shares(config.global_batch_size, ranks, events, measured=clock is not None),
        dtype,
        flops,
        Copies(model, strategy, config),
        EarlyStopper(config.early_stop) if config.early_stop is not None else None,
        base=base,
        clock=clock,
        objective=objective,
    )
    report_started(training, container, parameters)
    # 4. Where it goes on.
    if resume_from is not None:
        resume(training, resume_from)
    if ranks.is_node_leader:
        remove_partial(container.checkpoint_dir, but=resume_from)
    dist.barrier(group=ranks.control)  # no rank writes a checkpoint before the remains of the last attempt are removed
    return training


def _prepare_computation(model: torch.nn.Module, config: TrainConfig, container: Container, ranks: Ranks) -> None:
    """How blocks and loss are computed: kept or computed anew, compiled or as they are."""
    compiles = config.compile and prepare_compiler(ranks.device, container.work_dir)
    if config.compile and not compiles:
        print_line(
            ranks, "compile: there is no C compiler with Python's headers here, so the blocks are computed as they are"
        )
    prepare_blocks(model, checkpointing=config.activation_checkpointing, compiles=compiles)
    install_loss(model, compiles=compiles)


def _fill_and_wrap(
    model: torch.nn.Module,
    source: ModelSource,
    config: TrainConfig,
    strategy: Strategy,
    ranks: Ranks,
    *,
    dtype: torch.dtype,
    is_resumed: bool,
) -> torch.nn.Module:
    """The model with its weights, unit by unit, as the strategy places them."""
    units = filled_units(model, source, seed=config.seed, is_resumed=is_resumed)
    if config.quantize is not None:
        check_library()
        units = quantized_units(units, model, device=ranks.device, dtype=dtype)
    offloads = config.offload == "all"
    wrapped = strategy.wrap(units, ranks, dtype, offloads=offloads)
    if offloads and ranks.device.type == "cpu":
        print_line(ranks, "offload: the model lies in the node's memory anyway, there is no GPU")
    return wrapped


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """What the blocks compute in; `auto` is bfloat16 where the hardware multiplies it fast."""
    if name == "auto":
        fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        name = "bfloat16" if fast else "float32"
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def resume(training: Training, folder: Path) -> None:
    """Take over step, weights and optimizer of a checkpoint, whatever number of ranks wrote it."""
    began = time.monotonic()
    trainer = gather_results(training.ranks, lambda: read_trainer(folder))[training.ranks.rank]
    check_resumable(training, trainer)
    training.strategy.load_state(
        folder,
        training.model,
        training.optimizer,
        training.ranks,
        trained_only=training.config.lora is not None,
        copies=training.copies.state(),
    )
    training.objective.load_state(folder, trainer.get("references"), training.ranks)
    # No step would repair them. Numbers of a stranger that are finite and false cannot be told from trained ones.
    if not training.strategy.is_finite(
        training.model, training.optimizer, training.ranks, copies=training.copies.tensors()
    ):
        raise BadCheckpoint(f"checkpoint {folder.name} has numbers that are not finite")
    if training.stopper is not None:
        training.stopper.load(trainer.get("early_stop"), step=trainer["step"])
    training.step = training.started_at = training.checkpointer.saved_step = trainer["step"]
    seconds = round(time.monotonic() - began, 3)
    training.events.write(EventKind.RESUMED, step=training.step, from_world_size=trainer["world_size"], seconds=seconds)
    print_line(
        training.ranks, f"resumed from step {training.step}, saved by {trainer['world_size']} ranks, in {seconds} s"
    )


def check_resumable(training: Training, trainer: dict[str, Any]) -> None:
    """Refuse a checkpoint of another training: one whose cursor means other samples here, or in another layout.

    Raises BadCheckpoint; a stranger may have written anything there.
    """
    saved, now = trainer.get("config"), json.loads(json.dumps(dataclasses.asdict(training.config)))
    step, total = trainer.get("step"), training.config.steps_total
    layout = trainer.get("layout", PLAIN_NAMES)  # checkpoints from before there were strategies do not name it
    if not (isinstance(saved, dict) and isinstance(step, int) and isinstance(trainer.get("world_size"), int)):
        raise BadCheckpoint("the checkpoint does not say what training it is of")
    if not 0 <= step <= total:
        raise BadCheckpoint(f"the checkpoint is of step {step}, the training has {total}")
    mistakes = [
        f"{key} was {saved.get(key)!r:.100} in the checkpoint, is {now[key]!s:.100}"
        for key in PINNED_SETTINGS
        if saved.get(key) != now[key]
    ]
    if mistakes:
        raise BadCheckpoint("; ".join(mistakes))
    if layout != training.strategy.layout:
        raise BadCheckpoint(
            f"the checkpoint was saved by strategy {saved.get('strategy')!s:.100} in the layout {layout!s:.100}, "
            f"strategy {training.config.strategy} loads {training.strategy.layout} alone: "
            "resume with the strategy that saved it"
        )
    if trainer.get("base") != training.base:
        raise BadCheckpoint("the model is not the one that the checkpoint's adapters were trained for")
    if trainer.get("data") != training.text.corpus.digest:
        changed = any(is_s3_address(name) for name in training.config.data)
        why = f": {DATA_MAY_CHANGE}" if changed else ""
        raise BadCheckpoint(f"the data is not what the checkpoint was trained on{why}")
