"""The training, top to bottom: `train` is the story, the functions below it are its steps in order."""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tokenizers import Tokenizer
from torch import nn

from runtimes.contract import EventKind, EventWriter
from runtimes.train.checkpoint import (
    Checkpointer,
    find_checkpoint,
    load_checkpoint,
    read_trainer,
    remove_partial,
)
from runtimes.train.config import TrainConfig
from runtimes.train.container import Container
from runtimes.train.data import Corpus, encode_documents, open_corpus, read_documents
from runtimes.train.errors import BadConfig, BadData, Stopped
from runtimes.train.evaluate import evaluate, micro_batches, summed_loss
from runtimes.train.export import export_model
from runtimes.train.model import ModelSource, build_model, count_parameters, find_model
from runtimes.train.optimizer import apply_step, learning_rate_at, make_optimizer
from runtimes.train.order import batch_samples, largest_part, rank_part
from runtimes.train.parallel import Ranks, add_up, join_ranks, leave_ranks, shard_model, together
from runtimes.train.sample import sample_text
from runtimes.train.tokenizer import PADDING, end_of_text_id, load_tokenizer, train_tokenizer

TOKENS_FILE = "cache/tokens.int32"  # below the working directory
PINNED = ("global_batch_size", "sequence_length", "seed")  # what a checkpoint's cursor means depends on these


@dataclass
class Training:
    """Everything that the steps share. `step` counts the finished ones."""

    config: TrainConfig
    ranks: Ranks
    events: EventWriter
    source: ModelSource
    tokenizer: Tokenizer
    end_id: int
    corpus: Corpus
    model: nn.Module
    optimizer: torch.optim.Optimizer
    checkpointer: Checkpointer
    dtype: torch.dtype
    step: int = 0
    loss: float | None = None


def train(config: TrainConfig, container: Container, events: EventWriter, stop: threading.Event) -> None:
    """Train to the end and export; raises a TrainError otherwise, Stopped once `stop` is set and the state is saved."""
    # 1. Meet the other ranks.
    ranks = join_ranks(container)
    # 2. Find what to go on from, and the model.
    checkpoint = together(ranks, lambda: find_checkpoint(container) if ranks.is_node_leader else None)
    resume_from = checkpoint[ranks.rank - container.local_rank]
    source = together(ranks, lambda: find_model(config.model, container.input_dir))[ranks.rank]
    # 3. Tokenizer and data: made once a node, the same on all.
    tokenizer, end_id = prepare_tokenizer(config, container, ranks, source, resume_from)
    corpus = prepare_corpus(config, container, ranks, tokenizer, end_id)
    # 4. Model and optimizer, sharded over the ranks; then their state, if there is one.
    training = prepare_training(config, container, ranks, events, source, tokenizer, end_id, corpus, resume_from)
    # 5. The steps.
    run_steps(training, container, stop)
    # 6. The result.
    finish(training, container)
    leave_ranks()


def prepare_tokenizer(
    config: TrainConfig, container: Container, ranks: Ranks, source: ModelSource, resume_from: Path | None
) -> tuple[Tokenizer, int]:
    """The checkpoint's tokenizer, else the model's, else one that rank 0 trains on the data; and its end-of-text id."""

    def find_or_train() -> str | None:
        if not ranks.is_leader:
            return None
        known = load_tokenizer(resume_from) if resume_from else load_tokenizer(source.folder) if source.folder else None
        if known is None:
            documents = read_documents(config.data, container.input_dir, config.seed)
            known = train_tokenizer(documents, config.vocabulary_size or source.config.vocab_size)
        return str(known.to_str())

    tokenizer = Tokenizer.from_str(together(ranks, find_or_train)[0])
    if not source.has_weights and config.vocabulary_size is not None:
        source.config.vocab_size = max(config.vocabulary_size, tokenizer.get_vocab_size())
    if tokenizer.get_vocab_size() > source.config.vocab_size:
        raise BadData(f"the tokenizer has {tokenizer.get_vocab_size()} tokens, the model {source.config.vocab_size}")
    longest = getattr(source.config, "max_position_embeddings", None) or config.sequence_length
    if config.sequence_length > longest:
        raise BadConfig([f"sequence_length {config.sequence_length} is longer than the model's {longest} positions"])
    end_id = end_of_text_id(tokenizer, source.config.eos_token_id)
    if not source.has_weights:
        source.config.bos_token_id = source.config.eos_token_id = end_id
        source.config.pad_token_id = tokenizer.token_to_id(PADDING)
    return tokenizer, end_id


def prepare_corpus(
    config: TrainConfig, container: Container, ranks: Ranks, tokenizer: Tokenizer, end_id: int
) -> Corpus:
    """The data as tokens: encoded by each node's leader, mapped by all, and checked to be the same on every node."""
    path = container.work_dir / TOKENS_FILE

    def encode() -> str | None:
        if not ranks.is_node_leader:
            return None
        documents = read_documents(config.data, container.input_dir, config.seed)
        return encode_documents(documents, tokenizer, end_id, path)

    digests = {digest for digest in together(ranks, encode) if digest is not None}
    if len(digests) != 1:
        raise BadData("the nodes were given different data")
    return open_corpus(path, digests.pop(), sequence_length=config.sequence_length, eval_fraction=config.eval_fraction)


def prepare_training(
    config: TrainConfig,
    container: Container,
    ranks: Ranks,
    events: EventWriter,
    source: ModelSource,
    tokenizer: Tokenizer,
    end_id: int,
    corpus: Corpus,
    resume_from: Path | None,
) -> Training:
    """Build and shard the model, report the start, and fill in the checkpoint's state if there is one."""
    dtype = choose_dtype(config.dtype, ranks.device)
    model = build_model(source, seed=config.seed, with_weights=resume_from is None)
    parameters = count_parameters(model)
    shard_model(model, ranks, dtype)
    optimizer = make_optimizer(model, config)
    checkpointer = Checkpointer(container, ranks, events)
    training = Training(config, ranks, events, source, tokenizer, end_id, corpus, model, optimizer, checkpointer, dtype)
    report_started(training, container, parameters)
    if resume_from is not None:
        resume(training, resume_from)
    if ranks.is_node_leader:
        remove_partial(container.checkpoint_dir, but=resume_from)
    dist.barrier(group=ranks.control)  # nobody writes a checkpoint before the rests of the last attempt are gone
    return training


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """What the blocks compute in; `auto` is bfloat16 where the hardware multiplies it fast."""
    if name == "auto":
        fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        name = "bfloat16" if fast else "float32"
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def report_started(training: Training, container: Container, parameters: int) -> None:
    """The first healthy signal: rank 0's, and on every other node its leader's."""
    config, ranks = training.config, training.ranks
    facts: dict[str, Any] = {
        "model": config.model,
        "parameters": parameters,
        "world_size": ranks.world_size,
        "steps_total": config.steps_total,
        "tokens_total": config.steps_total * config.tokens_per_step,
        "device": ranks.device.type,
        "dtype": str(training.dtype).removeprefix("torch."),
        "train_sequences": training.corpus.train_samples,
        "eval_sequences": training.corpus.eval_samples,
    }
    started = training.events
    if ranks.is_node_leader and not ranks.is_leader:
        started = EventWriter(container.events_path)
    started.write(EventKind.STARTED, **facts)
    say(ranks, "started: " + " ".join(f"{key}={value}" for key, value in facts.items()))


def resume(training: Training, folder: Path) -> None:
    """Take over step, weights and optimizer of a checkpoint, whatever number of ranks wrote it."""
    began = time.monotonic()
    trainer = together(training.ranks, lambda: read_trainer(folder))[training.ranks.rank]
    check_resumable(training, trainer)
    load_checkpoint(folder, training.model, training.optimizer, training.ranks)
    training.step = training.checkpointer.saved_step = trainer["step"]
    seconds = round(time.monotonic() - began, 3)
    training.events.write(EventKind.RESUMED, step=training.step, from_world_size=trainer["world_size"], seconds=seconds)
    say(training.ranks, f"resumed from step {training.step}, saved by {trainer['world_size']} ranks, in {seconds} s")


def check_resumable(training: Training, trainer: dict[str, Any]) -> None:
    """Refuse a checkpoint whose cursor would mean other samples here."""
    now = dataclasses.asdict(training.config)
    mistakes = [
        f"{key} was {trainer['config'][key]} in the checkpoint, is {now[key]}"
        for key in PINNED
        if trainer["config"][key] != now[key]
    ]
    if mistakes:
        raise BadConfig(mistakes)
    if trainer["data"] != training.corpus.digest:
        raise BadData("the data is not what the checkpoint was trained on")


def run_steps(training: Training, container: Container, stop: threading.Event) -> None:
    """All remaining steps, with their evaluations, samples, events and checkpoints."""
    config, ranks = training.config, training.ranks
    if training.step == 0:
        report_evaluation(training)
    saved_at = time.monotonic()
    stepping, stepped = 0.0, 0  # seconds spent in steps alone since the last step event, and their number
    while training.step < config.steps_total:
        began = time.monotonic()
        loss, norm, rate = one_step(training)
        training.step += 1
        is_last = training.step == config.steps_total
        # One small sum over the ranks: the loss, and what all must decide alike.
        logs = is_last or training.step % config.log_every == 0
        every = container.checkpoint_every_seconds
        due = ranks.is_leader and every > 0 and time.monotonic() - saved_at >= every
        total, stopping, late = add_up(ranks, [float(loss) if logs else 0.0, float(stop.is_set()), float(due)])
        stepping, stepped = stepping + time.monotonic() - began, stepped + 1
        if logs:
            training.loss = total / config.tokens_per_step
            report_step(training, float(norm), rate, stepping / stepped)
            stepping, stepped = 0.0, 0
        training.checkpointer.check()
        every = container.checkpoint_every_steps
        if not is_last and (stopping or late or (every > 0 and training.step % every == 0)):
            save(training)
            saved_at = time.monotonic()
        if stopping and not is_last:
            training.checkpointer.wait()
            raise Stopped(f"stopped at step {training.step}; the state is saved in its checkpoint")
        if is_last or (config.evaluate_every and training.step % config.evaluate_every == 0):
            report_evaluation(training)
        if config.sample_every > 0 and training.step % config.sample_every == 0 and not is_last:
            report_sample(training)


def one_step(training: Training) -> tuple[torch.Tensor, torch.Tensor, float]:
    """One optimizer step: this rank's summed loss, the gradient's norm over all ranks, the learning rate."""
    config, ranks = training.config, training.ranks
    torch.manual_seed((config.seed * 1_000_003 + training.step) * 65_537 + ranks.rank)  # dropout, where a model has it
    ids = batch_samples(
        training.step, batch_size=config.global_batch_size, samples=training.corpus.train_samples, seed=config.seed
    )
    mine = ids[rank_part(len(ids), ranks.rank, ranks.world_size)]
    most = largest_part(len(ids), ranks.world_size)
    size = min(config.micro_batch_size or most, most)
    # Sharded gradients are averaged over the ranks; this makes the average the mean over the global batch's tokens.
    scale = ranks.world_size / config.tokens_per_step
    total = torch.zeros((), device=ranks.device)
    sequences = training.corpus.train_sequences(mine)
    for part, weights in micro_batches(sequences, passes=-(-most // size), size=size, device=ranks.device):
        loss = summed_loss(training.model, part, weights)
        (loss * scale).backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    rate = learning_rate_at(training.step, config)
    norm = apply_step(training.model, training.optimizer, learning_rate=rate, clip=config.gradient_clip)
    if config.log_samples:
        seen = together(ranks, mine.tolist)
        training.events.write(EventKind.SAMPLES, step=training.step + 1, ids=[i for part in seen for i in part])
    return total, norm, rate


def save(training: Training) -> None:
    """Begin a checkpoint of the present step."""
    trainer = {
        "step": training.step,
        "samples_seen": training.step * training.config.global_batch_size,
        "world_size": training.ranks.world_size,
        "data": training.corpus.digest,
        "config": dataclasses.asdict(training.config),
    }
    training.checkpointer.save(training.model, training.optimizer, training.tokenizer, trainer)


def report_step(training: Training, norm: float, rate: float, seconds: float) -> None:
    """One step event and one line of progress."""
    config = training.config
    speed = round(config.tokens_per_step / max(seconds, 1e-9), 1)
    training.events.write(
        EventKind.STEP,
        step=training.step,
        loss=training.loss,
        tokens=training.step * config.tokens_per_step,
        tokens_per_second=speed,
        learning_rate=rate,
        gradient_norm=norm,
        seconds=round(seconds, 5),
    )
    say(
        training.ranks,
        f"step {training.step}/{config.steps_total}  loss {training.loss:.4f}  lr {rate:.2e}  {speed:,.0f} tokens/s",
    )


def report_evaluation(training: Training) -> None:
    """The loss on the sequences kept apart."""
    loss = evaluate(training.model, training.corpus, training.ranks, micro_batch_size=training.config.micro_batch_size)
    training.events.write(EventKind.EVALUATED, step=training.step, loss=loss)
    say(training.ranks, f"step {training.step}/{training.config.steps_total}  evaluation loss {loss:.4f}")


def report_sample(training: Training) -> None:
    """What the model writes after the prompt."""
    config = training.config
    text = sample_text(
        training.model,
        training.tokenizer,
        training.ranks,
        prompt=config.sample_prompt,
        end_id=training.end_id,
        context=config.sequence_length,
        seed=config.seed + training.step,
    )
    training.events.write(EventKind.SAMPLED, step=training.step, prompt=config.sample_prompt, text=text)
    say(training.ranks, f"sample: {(config.sample_prompt + text)!r}")


def finish(training: Training, container: Container) -> None:
    """Sample once more, wait for the last checkpoint, export the model and report the end."""
    config, ranks = training.config, training.ranks
    if config.sample_every >= 0:
        report_sample(training)
    training.checkpointer.wait()
    files = export_model(
        training.model,
        training.source,
        training.tokenizer,
        ranks,
        end_id=training.end_id,
        output_dir=container.output_dir,
    )
    training.events.write(EventKind.EXPORTED, path=str(container.output_dir / "model"), files=files)
    training.events.write(
        EventKind.FINISHED, step=training.step, loss=training.loss, tokens=training.step * config.tokens_per_step
    )
    say(ranks, f"finished: {training.step} steps, the model is in {container.output_dir / 'model'}")
    dist.barrier(group=ranks.control)  # a rank that leaves early would take the leader's export with it


def say(ranks: Ranks, line: str) -> None:
    """One line of progress on the leader's standard output, visible at once."""
    if ranks.is_leader:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
