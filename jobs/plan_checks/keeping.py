"""One row a completed, paid training: what the planner says of it now, and what was measured.

    1  find     trainings of our own runtime that were completed within LOOKED_BACK and have no row
    2  read     the curve of the attempt that completed it, and what its `started` event says of the model
    3  compare  within what the server knows (comparing.py); what cannot be compared has a row that says why
    4  forget   rows beyond KEPT, and beyond ROWS_MAX the oldest

A sweep, apart from what ends and settles jobs: no end waits for it and no money follows from it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from uuid import UUID

from jobs.kinds.registry import kind_of, with_predicted_steps
from jobs.matching.demand import flops_of
from jobs.matching.link_speeds import slowest_link
from jobs.models import Attempt, CurvePoint, Job, Lease, PlanCheck, Stream, StreamChunk
from jobs.plan_checks.comparing import Compared, Known, Reported, compare, read_started
from jobs.spec import from_wire
from jobs.spec.kinds.train import train_of
from jobs.states import JobState
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from marketplace.nodes.models import Device
from provider_agent.protocol import AttemptState
from runtimes.contract import shipped_models
from runtimes.plan.devices import have_bfloat16
from runtimes.plan.memory import Place
from runtimes.plan.step_time import BYTES_MAX, FLOPS_MAX, Speed
from runtimes.shapes.shape import ModelMistake

LOOKED_BACK: Final = timedelta(days=2)
KEPT: Final = timedelta(days=365)
ROWS_MAX: Final = 20_000
JOBS_PER_SWEEP_MAX: Final = 50
FORGOTTEN_PER_SWEEP_MAX: Final = 1_000
EVENT_BYTES_READ_MAX: Final = 1 << 20  # until `started`: what comes before it is short, and written twice a minute
WHY_CHARACTERS_MAX: Final = 200
MIB: Final = 1 << 20


class _Unusable(Exception):
    """Why a training is not compared; its row says so."""


def sweep() -> int:
    """Keep what is new, forget what is old; how many trainings were looked at."""
    since = clock.now() - LOOKED_BACK
    kinds = with_predicted_steps()
    found = Job.objects.filter(kind__in=kinds, state=JobState.COMPLETED, ended_at__gte=since, plan_check=None)
    ids = list(found.order_by("?").values_list("pk", flat=True)[:JOBS_PER_SWEEP_MAX])  # what fails keeps nobody's turn
    for job_id in ids:
        with log_failures("A training could not be compared with its plan.", job_id=str(job_id)):
            keep(job_id)
    _forget()
    return len(ids)


def keep(job_id: UUID) -> PlanCheck:
    """The row of a completed training, made once."""
    job = Job.objects.select_related("organisation").get(pk=job_id)
    attempt = job.attempts.filter(state=AttemptState.SUCCEEDED.value).latest("number")
    leases = list(attempt.leases.filter(replaced_at=None).select_related("node__provider").order_by("node_rank"))
    provider = leases[0].node.provider
    row = PlanCheck(
        job=job,
        organisation=job.organisation,
        provider=provider,
        is_own=provider.organisation_id == job.organisation_id,
        ended_at=job.ended_at or clock.now(),
        ranks=sum(lease.device_count for lease in leases),
        nodes=len(leases),
    )
    try:
        _fill(row, job, attempt, leases)
    except (_Unusable, ModelMistake) as error:
        row.why = str(error)[:WHY_CHARACTERS_MAX]
    PlanCheck.objects.bulk_create([row], ignore_conflicts=True)  # another sweep may have been quicker
    return PlanCheck.objects.get(pk=job_id)


def _fill(row: PlanCheck, job: Job, attempt: Attempt, leases: list[Lease]) -> None:
    spec = from_wire(job.spec)
    train = train_of(spec)
    if train is None:
        raise _Unusable("a program of the customer's own")
    if any(not lease.charge_units for lease in leases):
        raise _Unusable("nothing was paid for it")
    if attempt.generation:
        raise _Unusable("its nodes changed while it ran")
    devices = list(Device.objects.filter(leases__in=leases))
    kinds = {(device.kind, device.model) for device in devices}
    if len(kinds) != 1 or len(devices) != row.ranks:
        raise _Unusable("its devices are of several models")
    ((row.device_kind, row.device_model),) = kinds
    kind = kind_of(job).spec_kind
    speed = _speed(devices, leases, kind.dtype(spec))
    memory = min(device.memory_mib for device in devices) * MIB
    place = Place(
        row.ranks,
        nodes=row.nodes,
        memory_bytes=memory,
        is_gpu=row.device_kind == "gpu",
        has_bfloat16=have_bfloat16([row.device_model]),
    )
    seen = min(lease.observed_ms for lease in leases) / 1000
    known = Known(kind.config(spec), train.model in shipped_models(), place, speed, memory, seen)
    _take(row, compare(_reported(job, attempt, leases[0]), known))


def _take(row: PlanCheck, compared: Compared) -> None:
    row.family, row.parameters, row.model_digest = compared.family, compared.parameters, compared.model_digest
    row.method, row.strategy = compared.method, compared.strategy
    if compared.peak is not None:
        row.planned_peak_bytes, row.measured_peak_bytes = compared.peak
    if compared.seconds is not None:
        row.planned_seconds, row.measured_seconds = compared.seconds
    row.why = compared.why[:WHY_CHARACTERS_MAX]


def _reported(job: Job, attempt: Attempt, lease: Lease) -> Reported:
    """What the program of the first rank said. Raises _Unusable."""
    model_config = read_started(_first_events(lease))
    if model_config is None:
        raise _Unusable("its program did not say what the model's shape follows from")
    points = list(CurvePoint.objects.filter(curve=job.pk, attempt=attempt.number).order_by("bucket"))
    seconds = [values[1] for point in points if (values := point.values.get("seconds_per_step"))]
    peaks = [values[3] for point in points if (values := point.values.get("peak_bytes"))]
    steps = max((p.last_step for p in points), default=0) - min((p.first_step for p in points), default=0) + 1
    return Reported(model_config, seconds, max(peaks, default=None), steps)


def _first_events(lease: Lease) -> bytes:
    data = b""
    chunks = StreamChunk.objects.filter(lease=lease, stream=Stream.EVENT, offset__lt=EVENT_BYTES_READ_MAX)
    for piece in chunks.order_by("offset").values_list("data", flat=True).iterator(chunk_size=16):
        data += bytes(piece)
        if len(data) >= EVENT_BYTES_READ_MAX or ((end := data.find(b'"started"')) >= 0 and b"\n" in data[end:]):
            break
    return data


def _speed(devices: list[Device], leases: list[Lease], dtype: str) -> Speed:
    """Of the slowest device and link, as they were measured. Raises _Unusable."""
    flops = min(flops_of(device.flops_per_second, device.kind, dtype) for device in devices)
    memory = min(device.memory_bytes_per_second for device in devices)
    if not 0 < flops <= FLOPS_MAX or not 0 <= memory <= BYTES_MAX:
        raise _Unusable("its devices' speed is not known")
    link = slowest_link([lease.node_id for lease in leases])
    return Speed(flops, memory, nodes=link.bytes_per_second, round_trip=link.round_trip_seconds)


def _forget() -> None:
    """A row goes once its job is too old to be looked at again."""
    now = clock.now()
    rows = PlanCheck.objects.order_by("-ended_at", "pk")
    last = list(rows.values_list("ended_at", flat=True)[ROWS_MAX : ROWS_MAX + 1])
    before = max([now - KEPT, *last])
    old = PlanCheck.objects.filter(ended_at__lte=before, ended_at__lt=now - LOOKED_BACK)
    ids = list(old.order_by("ended_at").values_list("pk", flat=True)[:FORGOTTEN_PER_SWEEP_MAX])
    PlanCheck.objects.filter(pk__in=ids).delete()
