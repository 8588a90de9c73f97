"""The training, top to bottom: `train` calls the functions below it in their order.

A strategy (`strategies/`) decides what depends on how the ranks share the work; this module names none of them.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist

from runtimes.contract import EventKind, EventWriter
from runtimes.train.callbacks.deterministic import make_deterministic
from runtimes.train.callbacks.profile import StepProfiler
from runtimes.train.checkpoint import find_checkpoint
from runtimes.train.config import TrainConfig, settled
from runtimes.train.container import Container
from runtimes.train.data.order import batch_samples
from runtimes.train.errors import BadData, Stopped
from runtimes.train.export import export_adapters, export_model, keep_on_disk
from runtimes.train.objectives.batches import micro_batches
from runtimes.train.optimizer import learning_rate_at, set_learning_rate
from runtimes.train.parallel import gather_results, print_line, wait_for_results
from runtimes.train.peaks import forget_peak
from runtimes.train.prepare import check_base, find_source, prepare_text, prepare_training
from runtimes.train.report import report_early_stop, report_evaluation, report_sample, report_step
from runtimes.train.strategies.registry import load_strategy
from runtimes.train.training import Training

SKIPPED_IN_A_ROW_MAX = 20


def train(config: TrainConfig, container: Container, events: EventWriter, stop: threading.Event) -> None:
    """Train to the end and export; raises a TrainError otherwise, Stopped once `stop` is set and the state is saved."""
    if config.deterministic:
        make_deterministic()
    # 1. Join the other ranks.
    strategy = load_strategy(config.strategy)
    ranks = strategy.join(container)
    # 2. Find the checkpoint to resume from, and the model.
    checkpoint = gather_results(ranks, lambda: find_checkpoint(container) if ranks.is_node_leader else None)
    resume_from = checkpoint[ranks.rank - container.local_rank]
    source = wait_for_results(ranks, lambda _: find_source(config, container, resume_from), "model")[ranks.rank]
    config = settled(
        config,
        has_weights=source.has_weights,
        is_shipped=source.folder is None,
        length_max=getattr(source.config, "max_position_embeddings", None),
    )
    base = check_base(config, ranks, source)
    # 3. Tokenizer and data: made once a node, the same on all.
    text = prepare_text(config, container, ranks, source, resume_from, stop=stop)
    # 4. Model and optimizer, as the strategy shares them; then their state, if there is one.
    training = prepare_training(
        config, container, strategy, ranks, events=events, source=source, base=base, text=text, resume_from=resume_from
    )
    # 5. The steps.
    run_steps(training, container, stop)
    # 6. The result.
    finish(training, container)
    strategy.leave()


def run_steps(training: Training, container: Container, stop: threading.Event) -> None:
    """All remaining steps, with their evaluations, samples, events and checkpoints."""
    config, strategy, ranks = training.config, training.strategy, training.ranks
    if training.step == 0:
        report_evaluation(training)
    passes = training.shares.passes(config.micro_batch_size)
    profiler = StepProfiler(config.profile, ranks, container, passes=passes)
    saved_at = time.monotonic()
    seconds, steps = 0.0, 0  # seconds in steps alone since the last step event, and the number of those steps
    is_last = training.step == config.steps_total
    forget_peak(ranks.device)
    while not is_last:
        profiler.before_step(training.step + 1 - training.started_at)
        began = time.monotonic()
        loss, norm, rate = one_step(training)
        training.step += 1
        is_last = training.step == config.steps_total
        # The ranks agree: on the loss, and on what all of them must do next.
        evaluates = is_last or (config.evaluate_every > 0 and training.step % config.evaluate_every == 0)
        may_end = evaluates and training.stopper is not None
        logs = is_last or may_end or training.step % config.log_every == 0
        interval = training.checkpointer.interval.seconds
        due = ranks.is_leader and interval > 0 and time.monotonic() - saved_at >= interval
        agreed = strategy.agree(ranks, loss=float(loss) if logs else 0.0, stop=stop.is_set(), save=due)
        seconds, steps = seconds + time.monotonic() - began, steps + 1
        profiler.after_step(training.step - training.started_at, is_last=is_last or agreed.stop)
        if logs:
            training.loss = agreed.loss
            report_step(training, float(norm), rate, seconds / steps)
            seconds, steps = 0.0, 0
        if evaluates:  # before a checkpoint of this step, which keeps what is the best so far
            report_evaluation(training)
            if not is_last and training.stopper is not None and training.stopper.is_over:
                training.stopper.check_learned()
                report_early_stop(training, training.stopper)
                is_last = True
        training.checkpointer.check()
        every = container.checkpoint_every_steps
        if not is_last and (agreed.stop or agreed.save or (every > 0 and training.step % every == 0)):
            save(training)
            saved_at = time.monotonic()
        if agreed.stop and not is_last:
            training.checkpointer.wait()
            raise Stopped(f"stopped at step {training.step}; the state is saved in its checkpoint")
        if config.sample_every > 0 and training.step % config.sample_every == 0 and not is_last:
            report_sample(training)
    profiler.close()


def one_step(training: Training) -> tuple[torch.Tensor, torch.Tensor, float]:
    """One optimizer step: this rank's part of the mean loss, the gradient's norm over all ranks, the learning rate."""
    config, strategy, ranks = training.config, training.strategy, training.ranks
    torch.manual_seed((config.seed * 1_000_003 + training.step) * 65_537 + ranks.rank)  # dropout, where a model has it
    ids = batch_samples(
        training.step, batch_size=config.global_batch_size, samples=training.text.corpus.train_samples, seed=config.seed
    )
    mine = ids[training.shares.mine]
    passes = training.shares.passes(config.micro_batch_size)
    targets = training.text.corpus.train_targets(ids)
    scale = strategy.scale_loss(ranks, targets)
    total = torch.zeros((), device=ranks.device)
    sequences = training.text.corpus.train_sequences(mine)
    clock = training.clock if training.shares.is_measured(training.step - training.started_at) else None
    computed = 0
    with clock.running() if clock else nullcontext():
        for number, batch in enumerate(micro_batches(sequences, passes=passes, device=ranks.device), 1):
            with strategy.accumulate(training.model, is_last=number == passes):
                loss = training.objective.loss(training.model, batch, training.figures)
                (loss * scale).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
            computed += len(batch.sequences)
    rate = learning_rate_at(training.step, config)
    set_learning_rate(training.optimizer, rate)
    norm = strategy.clip_gradients(training.model, config.gradient_clip)
    if accept_gradient(training, norm):
        training.optimizer.step()
        training.copies.update(training.step)
    training.optimizer.zero_grad(set_to_none=True)
    if config.log_samples:
        seen = gather_results(ranks, mine.tolist)
        training.events.write(EventKind.SAMPLES, step=training.step + 1, ids=[i for part in seen for i in part])
    if clock:
        training.shares.adapt(training.step + 1, clock.seconds(), computed)
    return total / targets, norm, rate


def accept_gradient(training: Training, norm: torch.Tensor) -> bool:
    """Whether to apply the gradient; one that is not finite would spoil every weight for good, and is counted instead.

    `norm`: over all ranks, so that all decide alike. Raises BadData at the twentieth in a row, or where no step of this
    start had a finite one.
    """
    if bool(torch.isfinite(norm)):
        training.skipped_in_a_row = 0
        return True
    training.skipped += 1
    training.skipped_in_a_row += 1
    print_line(training.ranks, f"step {training.step + 1}: the gradient is not finite, the weights stay as they are")
    if training.skipped_in_a_row >= min(SKIPPED_IN_A_ROW_MAX, training.config.steps_total - training.started_at):
        raise BadData(
            f"the gradient was not finite for {training.skipped_in_a_row} steps in a row: take a lower learning_rate, "
            "more warmup_steps, or look at the data"
        )
    return False


def save(training: Training) -> None:
    """Begin a checkpoint of the present step."""
    trainer = {
        "step": training.step,
        "samples_seen": training.step * training.config.global_batch_size,
        "world_size": training.ranks.world_size,
        "layout": training.strategy.layout,
        "data": training.text.corpus.digest,
        "config": dataclasses.asdict(training.config),
        **({"base": training.base} if training.base else {}),
        **({"s3": training.text.s3_digest} if training.text.s3_digest else {}),
        **({"references": training.objective.digest} if training.objective.digest else {}),
        **({"early_stop": training.stopper.state()} if training.stopper else {}),
    }
    has_adapters = training.config.lora is not None
    state = training.strategy.saved_state(training.model, training.optimizer, trained_only=has_adapters)
    state |= training.copies.state() | training.objective.saved_state()
    training.checkpointer.save(state, training.text.tokenizer, trainer)


def finish(training: Training, container: Container) -> None:
    """Sample once more, wait for the last checkpoint, export the model and report the end."""
    config, ranks, stopper = training.config, training.ranks, training.stopper
    best = {}
    if stopper is not None and stopper.settings.export_best:
        stopper.check_learned()
        best = {"best_step": stopper.best_step}
    with training.copies.as_exported():
        if config.sample_every >= 0:
            report_sample(training)
        training.checkpointer.close()  # the export needs memory, too
        weights = gather_weights(training, container)
    files = wait_for_results(
        ranks, lambda _: export(training, container, weights) if ranks.is_leader else [], "export"
    )[0]
    training.events.write(EventKind.EXPORTED, path=str(container.output_dir / "model"), files=files, **best)
    training.events.write(
        EventKind.FINISHED, step=training.step, loss=training.loss, tokens=training.step * config.tokens_per_step
    )
    print_line(ranks, f"finished: {training.step} steps, the model is in {container.output_dir / 'model'}")
    dist.barrier(group=ranks.control)  # a rank that leaves early would take the leader's export with it


def gather_weights(training: Training, container: Container) -> dict[str, torch.Tensor]:
    """What was trained, whole, in the result's dtype (adapters in their own); on rank 0, nothing on the others.

    They lie in files that have no name any more, so no rank ever has the whole model in its memory.
    """
    has_adapters = training.config.lora is not None
    weights = training.strategy.whole_weights(training.model, trained_only=has_adapters)
    if not training.ranks.is_leader:
        for _ in weights:
            pass  # its part of each is gathered by rank 0
        return {}
    return keep_on_disk(weights, container.work_dir, dtype=None if has_adapters else training.source.dtype)


def export(training: Training, container: Container, weights: dict[str, torch.Tensor]) -> list[str]:
    """Write the result of these whole weights, of adapters also merged with their base; its files' names."""
    source, text, lora = training.source, training.text, training.config.lora
    if lora is not None:
        merged = export_adapters(weights, source, lora, output_dir=container.output_dir)
        weights = keep_on_disk(merged, container.work_dir)
    return export_model(
        weights,
        source,
        text.tokenizer,
        end_id=text.end_id,
        chat_template=text.chat_template,
        output_dir=container.output_dir,
    )
