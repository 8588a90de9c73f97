"""The training, top to bottom: `train` is the story, the functions below it are its steps in order."""

from __future__ import annotations

import dataclasses
import threading
import time

import torch
import torch.distributed as dist

from runtimes.contract import EventKind, EventWriter
from runtimes.train.checkpoint import find_checkpoint
from runtimes.train.config import TrainConfig
from runtimes.train.container import Container
from runtimes.train.errors import Stopped
from runtimes.train.evaluate import micro_batches, summed_loss
from runtimes.train.export import export_model
from runtimes.train.model import find_model
from runtimes.train.optimizer import apply_step, learning_rate_at
from runtimes.train.order import batch_samples, largest_part, rank_part
from runtimes.train.parallel import add_up, join_ranks, leave_ranks, together
from runtimes.train.prepare import prepare_text, prepare_training
from runtimes.train.report import report_evaluation, report_sample, report_step, say
from runtimes.train.training import Training


def train(config: TrainConfig, container: Container, events: EventWriter, stop: threading.Event) -> None:
    """Train to the end and export; raises a TrainError otherwise, Stopped once `stop` is set and the state is saved."""
    # 1. Meet the other ranks.
    ranks = join_ranks(container)
    # 2. Find what to go on from, and the model.
    checkpoint = together(ranks, lambda: find_checkpoint(container) if ranks.is_node_leader else None)
    resume_from = checkpoint[ranks.rank - container.local_rank]
    source = together(ranks, lambda: find_model(config.model, container.input_dir))[ranks.rank]
    # 3. Tokenizer and data: made once a node, the same on all.
    text = prepare_text(config, container, ranks, source, resume_from)
    # 4. Model and optimizer, sharded over the ranks; then their state, if there is one.
    training = prepare_training(
        config, container, ranks, events=events, source=source, text=text, resume_from=resume_from
    )
    # 5. The steps.
    run_steps(training, container, stop)
    # 6. The result.
    finish(training, container)
    leave_ranks()


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
        training.step, batch_size=config.global_batch_size, samples=training.text.corpus.train_samples, seed=config.seed
    )
    mine = ids[rank_part(len(ids), ranks.rank, ranks.world_size)]
    most = largest_part(len(ids), ranks.world_size)
    size = min(config.micro_batch_size or most, most)
    # Sharded gradients are averaged over the ranks; this makes the average the mean over the global batch's tokens.
    scale = ranks.world_size / config.tokens_per_step
    total = torch.zeros((), device=ranks.device)
    sequences = training.text.corpus.train_sequences(mine)
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
        "data": training.text.corpus.digest,
        "config": dataclasses.asdict(training.config),
    }
    training.checkpointer.save(training.model, training.optimizer, training.text.tokenizer, trainer)


def finish(training: Training, container: Container) -> None:
    """Sample once more, wait for the last checkpoint, export the model and report the end."""
    config, ranks = training.config, training.ranks
    if config.sample_every >= 0:
        report_sample(training)
    training.checkpointer.wait()
    files = export_model(
        training.model,
        training.source,
        training.text.tokenizer,
        ranks,
        end_id=training.text.end_id,
        output_dir=container.output_dir,
    )
    training.events.write(EventKind.EXPORTED, path=str(container.output_dir / "model"), files=files)
    training.events.write(
        EventKind.FINISHED, step=training.step, loss=training.loss, tokens=training.step * config.tokens_per_step
    )
    say(ranks, f"finished: {training.step} steps, the model is in {container.output_dir / 'model'}")
    dist.barrier(group=ranks.control)  # a rank that leaves early would take the leader's export with it
