"""An evaluation from its start to its end.

    1. read the task files, and collect what the harness asks: nothing is computed yet
    2. load the first model; endpoints show that they can answer what they will be asked
    3. for each model: load it, compute or ask what has no answer, save, score
    4. compare each model with the first, and write results.json, samples.jsonl, report.html and run.json

The first three are the same bit by bit whatever the batch size, the number of devices and the interruptions; what
differs from run to run (times, versions, how much was computed and how much reused) is in run.json. An endpoint's
answers are the same only where they were kept.
"""

from __future__ import annotations

import gc
import json
import re
import threading
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from runtimes.contract import EventKind, EventWriter
from runtimes.evaluate import embed, harness
from runtimes.evaluate.answers import ANSWERS_FILE, Answers
from runtimes.evaluate.compare import compare, read_samples
from runtimes.evaluate.compute import Progress, compute_missing
from runtimes.evaluate.config import Config, Endpoint
from runtimes.evaluate.endpoint import EndpointModel
from runtimes.evaluate.model import Known, Model, choose_same_kernels, know
from runtimes.evaluate.report import REPORT_FILE, SampleMap, make_report
from runtimes.evaluate.request import EMBED, Answer, Request
from runtimes.evaluate.results import ModelResult, read_metrics, write_results
from runtimes.evaluate.tasks import TaskFile, find_tasks
from runtimes.train.container import Container

METRIC_CHARACTERS_MAX = 40  # contract.METRIC_NAME
_NOT_IN_METRICS = re.compile(r"[^A-Za-z0-9_./-]")  # the same
RUN_FILE = "run.json"
CHECK_SECONDS_MAX = 600.0  # within which all endpoints show what they can: one that sleeps takes minutes to wake


def evaluate(config: Config, container: Container, events: EventWriter, stop: threading.Event, *, devices: int) -> None:
    """Evaluate as the configuration says; raises a TrainError that names what went wrong."""
    choose_same_kernels()
    harness.prepare()
    began = time.monotonic()
    tasks = find_tasks(config.tasks, container.input_dir)
    requests, collected = harness.collect(tasks, config)
    container.work_dir.mkdir(parents=True, exist_ok=True)
    knowns = [_know(model, config, container, stop) for model in config.models]
    mapper = _mapper(knowns) if config.map and len(knowns) > 1 else None
    places = [Request(EMBED, (sample.text,)) for sample in read_samples(collected)] if mapper else []
    asked = [[*requests, *dict.fromkeys(places)] if known is mapper else requests for known in knowns]
    wanted = {
        request.digest(known.digest): request.kind
        for known, of_model in zip(knowns, asked, strict=True)
        for request in of_model
    }
    answers = Answers(container.work_dir / ANSWERS_FILE, wanted, resume_from=container.resume_from)
    resumed = len(answers)
    progress = Progress(container, events, stop, devices, saved=answers.resumed)
    models: list[ModelResult] = []
    found: dict[str, Any] = {}
    for known, of_model in zip(knowns, asked, strict=True):
        progress.leave_if_stopped()
        model = _load(known, config, container, devices=devices, stop=stop)
        if not models:
            total = sum(len(each) for each in asked)
            _report_start(events, model, config, container, devices=devices, total=total, resumed=resumed)
            _check_endpoints(knowns, requests, answers)
        compute_missing(of_model, model, answers, progress, batch_size=config.batch_size)
        parameters = model.parameters
        del model  # its memory is the next one's; some of it is in cycles
        gc.collect()
        found, result = _score(known, tasks, config, requests, answers, parameters=parameters)
        models.append(result)
        _report_metrics(events, progress, result)
    embeddings = [answers[place.digest(mapper.digest)] for place in places] if mapper else []
    answers.close()
    comparisons = {
        each.name: compare(models[0].samples, each.samples, found["higher_is_better"]) for each in models[1:]
    }
    folder = container.output_dir
    folder.mkdir(parents=True, exist_ok=True)
    body = write_results(folder, config, tasks, models, comparisons)
    drawn = SampleMap(embed.to_plane(embeddings), mapper.name if mapper else "")
    (folder / REPORT_FILE).write_text(make_report(body, models, comparisons, drawn))
    (folder / RUN_FILE).write_text(json.dumps(_run_facts(progress, resumed, began, devices), indent=2) + "\n")
    events.write(EventKind.FINISHED, step=progress.computed + progress.reused, **_counts(progress))


def _know(model: str | Endpoint, config: Config, container: Container, stop: threading.Event) -> Known | EndpointModel:
    if isinstance(model, Endpoint):
        return EndpointModel(model, stop=stop)
    return know(model, container.files, dtype=config.dtype)


def _mapper(knowns: Sequence[Known | EndpointModel]) -> Known | None:
    """The model that the map is of: the first whose hidden states can be seen, which an endpoint's cannot."""
    return next((known for known in knowns if isinstance(known, Known)), None)


def _check_endpoints(knowns: Sequence[Known | EndpointModel], requests: list[Request], answers: Answers) -> None:
    """Before anything is computed, each endpoint that will be asked shows that it can answer; raises BadData.

    Once the evaluation has started, as a node is paid from then on: an endpoint may let it wait.
    """
    until = time.monotonic() + CHECK_SECONDS_MAX
    for known in knowns:
        if isinstance(known, EndpointModel):
            missing = [request for request in requests if request.digest(known.digest) not in answers]
            known.check(missing, until=until)


def _load(
    known: Known | EndpointModel, config: Config, container: Container, *, devices: int, stop: threading.Event
) -> Model | EndpointModel:
    if isinstance(known, EndpointModel):
        return known
    return Model(known, dtype=config.dtype, device_kind=container.device_kind, devices=devices, stop=stop)


def _score(
    known: Known | EndpointModel,
    tasks: list[TaskFile],
    config: Config,
    requests: list[Request],
    answers: Answers,
    *,
    parameters: int | None,
) -> tuple[dict[str, Any], ModelResult]:
    """The harness's results of a model all of whose requests are answered."""

    def answer(request: Request) -> Answer:
        return answers[request.digest(known.digest)]

    found = harness.score(tasks, config, answer)
    result = ModelResult(
        name=known.name,
        digest=known.digest,
        parameters=parameters,
        requests=len(requests),
        metrics=read_metrics(found),
        samples=read_samples(found),
        endpoint=known.endpoint if isinstance(known, EndpointModel) else None,
    )
    return found, result


def _report_start(
    events: EventWriter,
    model: Model | EndpointModel,
    config: Config,
    container: Container,
    *,
    devices: int,
    total: int,
    resumed: int,
) -> None:
    events.write(
        EventKind.STARTED,
        model=model.name,
        parameters=model.parameters or 0,
        world_size=devices,
        steps_total=total,
        device=container.device_kind or "cpu",
        dtype=config.dtype,
        requests=total,
    )
    if resumed:
        events.write(EventKind.RESUMED, step=resumed, from_world_size=devices, seconds=0.0)


def _report_metrics(events: EventWriter, progress: Progress, result: ModelResult) -> None:
    """An `evaluated` event and lines in the log; names that are too long for an event are in the results alone."""
    figures = {f"{task}/{name}": each.value for task, of in result.metrics.items() for name, each in of.items()}
    named = {_NOT_IN_METRICS.sub("_", name): value for name, value in figures.items()}
    short = {name: value for name, value in named.items() if len(name) <= METRIC_CHARACTERS_MAX}
    events.write(EventKind.EVALUATED, step=progress.computed + progress.reused, model=result.name, metrics=short)
    for name, value in figures.items():
        print(f"{result.name}: {name} {value:g}", flush=True)  # noqa: T201 - into the job's log


def _counts(progress: Progress) -> dict[str, int]:
    return {"computed": progress.computed, "reused": progress.reused}


def _run_facts(progress: Progress, resumed: int, began: float, devices: int) -> dict[str, Any]:
    return {
        **_counts(progress),
        "kept_before": resumed,
        "seconds": round(time.monotonic() - began, 3),
        "devices": devices,
        "device_kind": progress.container.device_kind or "cpu",
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers", "lm_eval", "datasets")},
    }
