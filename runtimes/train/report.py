"""What a training reports: events for the agent, one line each for people."""

from __future__ import annotations

from typing import Any

from runtimes.contract import EventKind, EventWriter
from runtimes.shapes.families import keys_that_count
from runtimes.train.callbacks.early_stop import EarlyStopper
from runtimes.train.container import Container
from runtimes.train.evaluate import evaluate
from runtimes.train.parallel import gather_results, print_line
from runtimes.train.peaks import bfloat16_peak, peak_bytes
from runtimes.train.sample import sample_text
from runtimes.train.training import Training


def report_started(training: Training, container: Container, parameters: int) -> None:
    """The first healthy signal: rank 0's, and on every other node its leader's."""
    config, ranks = training.config, training.ranks
    trained = sum(parameter.numel() for parameter in training.model.parameters() if parameter.requires_grad)
    facts: dict[str, Any] = {
        "model": config.model,
        "parameters": parameters,
        **({"trained_parameters": trained} if config.lora else {}),
        "world_size": ranks.world_size,
        "steps_total": config.steps_total,
        "tokens_total": config.steps_total * config.tokens_per_step,
        "device": ranks.device.type,
        "dtype": str(training.dtype).removeprefix("torch."),
        "train_sequences": training.text.corpus.train_samples,
        "eval_sequences": training.text.corpus.eval_samples,
    }
    started = training.events
    if ranks.is_node_leader and not ranks.is_leader:
        started = EventWriter(container.events_path)
    shape = keys_that_count(training.source.config.to_dict())
    started.write(EventKind.STARTED, **facts, **({"model_config": shape} if shape else {}))
    print_line(ranks, "started: " + " ".join(f"{key}={value}" for key, value in facts.items()))


def report_step(training: Training, norm: float, rate: float, seconds: float) -> None:
    """One step event and one line of progress."""
    config = training.config
    flops, peak = training.flops_per_token, bfloat16_peak(training.ranks.device)
    metrics = training.figures.means(training.ranks)  # of all steps since the last event
    speed = round(config.tokens_per_step / max(seconds, 1e-9), 1)
    memory = peak_bytes(training.ranks.device)
    training.events.write(
        EventKind.STEP,
        step=training.step,
        loss=training.loss,
        tokens=training.step * config.tokens_per_step,
        tokens_per_second=speed,
        learning_rate=rate,
        gradient_norm=norm,
        seconds=round(seconds, 5),
        **({"model_flops_per_second": round(speed * flops)} if flops else {}),
        **({"mfu": round(speed * flops / (peak * training.ranks.world_size), 4)} if flops and peak else {}),
        **({"peak_bytes": memory} if memory else {}),
        **({"metrics": metrics} if metrics else {}),
        **({"skipped": training.skipped} if training.skipped else {}),
    )
    print_line(
        training.ranks,
        f"step {training.step}/{config.steps_total}  loss {training.loss:.4f}  lr {rate:.2e}  {speed:,.0f} tokens/s",
    )


def report_evaluation(training: Training) -> None:
    """The loss on the held-out sequences, of the average of the weights where there is one."""
    ranks, stopper = training.ranks, training.stopper
    with training.copies.as_evaluated():
        loss, metrics = evaluate(
            training.model,
            training.objective,
            training.text.corpus,
            ranks,
            micro_batch_size=training.config.micro_batch_size,
        )
        if stopper is not None:
            loss = gather_results(ranks, lambda: loss)[0]  # the leader's: all decide by the same bits
            # Where no step was made, or the last gradient was not finite, the weights did not change: to evaluate
            # them is no sign that they cannot improve.
            may_end = training.step > 0 and training.skipped_in_a_row == 0
            if stopper.observe(training.step, loss, may_end=may_end):
                training.copies.keep_best()
    figures: dict[str, Any] = {"metrics": metrics} if metrics else {}
    training.events.write(EventKind.EVALUATED, step=training.step, loss=loss, **figures)
    print_line(training.ranks, f"step {training.step}/{training.config.steps_total}  evaluation loss {loss:.4f}")


def report_early_stop(training: Training, stopper: EarlyStopper) -> None:
    """That the training ends here, though more steps were asked for; a finite loss was the best."""
    total, loss, best = training.config.steps_total, stopper.best_loss, stopper.best_step
    training.events.write(
        EventKind.STOPPED_EARLY, step=training.step, steps_total=total, best_step=best, best_loss=loss
    )
    print_line(
        training.ranks,
        f"step {training.step}/{total}  ends early: no evaluation was better than {loss:.4f}, of step {best}",
    )


def report_sample(training: Training) -> None:
    """What the model writes after the prompt."""
    config = training.config
    with training.copies.as_evaluated():
        text = sample_text(
            training.model,
            training.text.tokenizer,
            training.ranks,
            prompt=config.sample_prompt,
            end_id=training.text.end_id,
            context=config.length,
            seed=config.seed + training.step,
        )
    training.events.write(EventKind.SAMPLED, step=training.step, prompt=config.sample_prompt, text=text)
    print_line(training.ranks, f"sample: {(config.sample_prompt + text)!r}")
