"""Plans of completed trainings beside what was measured: what is kept, what is not believed, and who is shown what."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from jobs.models import Job, Lease, PlanCheck, Stream
from jobs.plan_checks import keeping, summaries
from jobs.quoting import quotes
from jobs.running import streams
from jobs.running.curves import read_curve
from jobs.spec.kinds.train import TrainSpec
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from runtimes.contract import shipped_model_config
from runtimes.plan.memory import Place, reckon_memory
from runtimes.plan.reading import read_training
from runtimes.plan.step_time import Speed, reckon_step
from tests import stage
from tests.integration.jobs.api.api_clients import API, client_of

pytestmark = pytest.mark.django_db(transaction=True)

STEPS, SECONDS, PEAK = 100, 0.5, 300 << 20
LIKE = summaries.Planned("gpu", "NVIDIA H100", "full", is_shared=True, family="llama", parameters=3_000_000)


@pytest.fixture
def alice(transactional_db: None) -> Organisation:
    return stage.organisation("alice", usd_micros=50 * stage.DOLLAR)


@pytest.fixture
def bob(transactional_db: None) -> Node:
    return stage.node("bobs-node")


def train(
    buyer: Organisation,
    *,
    seconds: Any = SECONDS,
    peak: Any = PEAK,
    steps: int = STEPS,
    seen: float = 1800,
    paid_ms: int = 60_000,
    started: dict[str, Any] | None = None,
) -> tuple[Job, Lease]:
    """A training that reported this, and was completed."""
    job, (lease,) = stage.running_job(buyer)
    events: list[dict[str, Any]] = [
        {"event": "started", "steps_total": STEPS, "model_config": shipped_model_config("tiny-llama")}
        if started is None
        else started
    ]
    events += [
        {"event": "step", "step": number, "loss": 2.0, "seconds": seconds, "peak_bytes": peak}
        for number in range(1, steps + 1)
    ]
    data = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    streams.append(lease, Stream.EVENT, fence=lease.fence, offset=0, data=data)
    stage.see_running(lease, seconds=seen)
    if paid_ms:
        stage.bill(lease, ms=paid_ms)
    stage.finish(lease, event_bytes=len(data))
    job.refresh_from_db()
    assert job.state == "completed"
    return job, lease


def kept(job: Job) -> PlanCheck:
    keeping.sweep()
    return PlanCheck.objects.get(job=job)


def test_a_completed_training_is_held_against_its_plan(alice: Organisation, bob: Node) -> None:
    job, _ = train(alice)
    row = kept(job)
    spec = stage.spec_of()
    shape, config = read_training(
        TrainSpec().config(spec), shipped_model_config("tiny-llama"), is_shipped=True, has_weights=False
    )
    place = Place(2, memory_bytes=24_000 << 20)
    assert row.planned_seconds == reckon_step(shape, config, place, Speed(1e13)).seconds
    assert row.planned_peak_bytes == reckon_memory(shape, config, place).peak
    assert (row.measured_seconds, row.measured_peak_bytes, row.why) == (SECONDS, PEAK, "")
    assert (row.family, row.parameters, row.method, row.strategy) == ("llama", shape.parameters, "full", "fsdp2")
    assert (row.device_kind, row.device_model, row.ranks, row.nodes) == ("gpu", "NVIDIA H100", 2, 1)
    assert (row.organisation_id, row.provider_id, row.is_own) == (alice.pk, bob.provider_id, False)


def test_a_training_has_one_row_however_often_the_sweep_comes(alice: Organisation, bob: Node) -> None:
    job, _ = train(alice)
    assert keeping.sweep() == 1 and keeping.sweep() == 0
    keeping.keep(job.pk)
    assert PlanCheck.objects.count() == 1


def test_no_money_and_no_quote_moves_with_it(alice: Organisation, bob: Node) -> None:
    train(alice, seconds=15.0, paid_ms=1_800_000)
    before = stage.earned(bob), quotes.make_quote(stage.spec_of(), alice).expected_seconds
    keeping.sweep()
    assert before == (stage.earned(bob), quotes.make_quote(stage.spec_of(), alice).expected_seconds)


@pytest.mark.parametrize(
    ("lie", "word"),
    [
        ({"seconds": 30.0}, "more seconds than"),
        ({"seconds": 1e-9}, "faster than"),
        ({"seconds": -1.0}, "cannot be"),
        ({"seconds": 1e29}, "cannot be"),
        ({"seconds": "soon"}, "fewer than"),
        ({"steps": 5}, "fewer than"),
        ({"peak": 1 << 40}, "memory that"),
        ({"peak": 1.0}, "memory that"),
        ({"peak": -5}, "memory that"),
        ({"seen": 5.0, "paid_ms": 1_000}, "more seconds than"),
    ],
)
def test_what_cannot_be_is_no_figure(alice: Organisation, bob: Node, lie: dict[str, Any], word: str) -> None:
    row = kept(train(alice, **lie)[0])
    assert word in row.why
    if "peak" in lie:
        assert row.measured_peak_bytes is None and row.measured_seconds == SECONDS
    else:
        assert row.measured_seconds is None and row.planned_seconds is None


@pytest.mark.parametrize(
    ("started", "word"),
    [
        ({"event": "started"}, "did not say"),
        ({"event": "started", "model_config": "llama"}, "did not say"),
        ({"event": "started", "model_config": {"model_type": "llama", "hidden_size": 10**30}}, "nothing is known"),
        ({"event": "started", "model_config": {"model_type": ["x"] * 100}}, "nothing is known"),
        ({"event": "started", "model_config": {}}, "nothing is known"),
    ],
)
def test_a_model_that_is_not_understood_is_not_compared(
    alice: Organisation, bob: Node, started: dict[str, Any], word: str
) -> None:
    row = kept(train(alice, started=started)[0])
    assert word in row.why and (row.measured_seconds, row.measured_peak_bytes, row.family) == (None, None, "")


def test_what_nobody_paid_for_does_not_count(alice: Organisation, bob: Node) -> None:
    row = kept(train(alice, paid_ms=0)[0])
    assert row.why == "nothing was paid for it" and row.measured_seconds is None


def add(buyer: Organisation, seller: Node, *, more: float = 1.0, is_own: bool = False, age: int = 0) -> PlanCheck:
    """A row as the sweep makes it, of a training that took `more` times what was planned."""
    template = PlanCheck.objects.first()
    job = stage.submit(buyer)
    values = {f.name: getattr(template, f.name) for f in PlanCheck._meta.concrete_fields} if template else {}
    return PlanCheck.objects.create(
        **values
        | {
            "job": job,
            "organisation": buyer,
            "provider": seller.provider,
            "is_own": is_own,
            "planned_seconds": 1.0,
            "measured_seconds": more,
            "planned_peak_bytes": 100,
            "measured_peak_bytes": int(100 * more),
            "ended_at": clock.now() - timedelta(minutes=age),
            "family": "llama",
            "parameters": 3_000_000,
            "device_kind": "gpu",
            "device_model": "NVIDIA H100",
            "method": "full",
            "ranks": 2,
        }
    )


@pytest.fixture
def market(alice: Organisation, bob: Node) -> tuple[list[Organisation], list[Node]]:
    buyers = [stage.organisation(f"buyer-{n}", usd_micros=500 * stage.DOLLAR) for n in range(4)]
    return buyers, [bob, *(stage.node(f"node-{n}") for n in range(3))]


def test_one_customer_or_provider_has_one_vote(
    alice: Organisation, market: tuple[list[Organisation], list[Node]]
) -> None:
    buyers, sellers = market
    for buyer, seller in zip(buyers[:3], sellers[:3], strict=True):
        add(buyer, seller, more=1.1)
    mallory = buyers[3]
    for age in range(6):  # of her own trainings on every node, and of her friends on her node
        add(mallory, sellers[3], more=9.0, age=age)
    found = summaries.find_checks(alice, LIKE)
    assert found.own is None and found.all is not None
    assert (found.all.votes, found.all.seconds_error, found.all.memory_error_size) == (4, 0.1, 0.1)
    assert found.all.like == "family, size and device"


def test_two_customers_are_too_few_to_say_anything_to_others(
    alice: Organisation, market: tuple[list[Organisation], list[Node]]
) -> None:
    buyers, sellers = market
    for seller in sellers:
        add(buyers[0], seller), add(buyers[1], seller)
    assert summaries.find_checks(alice, LIKE).all is None
    own = summaries.find_checks(buyers[0], LIKE).own
    assert own is not None and (own.trainings, own.seconds_error) == (4, 0.0)


def test_trainings_on_nodes_of_ones_own_say_nothing_to_others(
    alice: Organisation, market: tuple[list[Organisation], list[Node]]
) -> None:
    for buyer, seller in zip(*market, strict=True):
        add(buyer, seller, is_own=True)
    assert summaries.find_checks(alice, LIKE).all is None


def test_the_path_shows_medians_to_members_alone(
    alice: Organisation, market: tuple[list[Organisation], list[Node]]
) -> None:
    for buyer, seller in zip(*market, strict=True):
        add(buyer, seller, more=1.2)
    query = "?device_kind=gpu&device_model=NVIDIA+H100&method=full&is_shared=true&family=llama&parameters=3000000"
    answer = client_of(alice).get(f"{API}/plan-checks{query}")
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert body["own"] is None and (body["all"]["votes"], body["all"]["seconds_error"]) == (4, 0.2)
    said = json.dumps(body)
    assert not any(str(each.pk) in said or each.name in said for each in market[0])
    assert client_of(alice).get(f"{API}/plan-checks?device_kind=tpu").status_code == 400
    assert client_of(alice).get(f"{API}/plan-checks{query}&job=1").status_code == 400


def test_what_is_old_goes_and_what_is_new_stays(
    alice: Organisation, market: tuple[list[Organisation], list[Node]], monkeypatch: pytest.MonkeyPatch
) -> None:
    buyers, sellers = market
    ages = {"new": 0, "days": 60 * 24 * 5, "weeks": 60 * 24 * 20, "years": 60 * 24 * 800}
    rows: dict[str, UUID] = {name: add(buyers[0], sellers[0], age=age).pk for name, age in ages.items()}
    keeping.sweep()
    assert set(PlanCheck.objects.values_list("pk", flat=True)) == {rows[name] for name in ("new", "days", "weeks")}
    monkeypatch.setattr(keeping, "ROWS_MAX", 2)
    keeping.sweep()
    assert set(PlanCheck.objects.values_list("pk", flat=True)) == {rows["new"], rows["days"]}
    monkeypatch.setattr(keeping, "ROWS_MAX", 0)
    keeping.sweep()
    assert set(PlanCheck.objects.values_list("pk", flat=True)) == {rows["new"]}, "else it would be looked at again"


def test_a_curve_shows_the_peak(alice: Organisation, bob: Node) -> None:
    job, _ = train(alice)
    assert next(each for each in read_curve(job.pk).series if each.name == "peak_bytes").points[0].newest == PEAK


def test_a_gangs_candidate_has_its_slowest_link(alice: Organisation) -> None:
    owner = stage.organisation("carol")
    nodes = [stage.node(f"gang-{n}", fabric="rack", provider=owner) for n in range(2)]
    view = quotes.make_quote(stage.spec_of(resources={"gpus": 2, "nodes": 2, "kind": "any"}), alice)
    chosen = view.plan.candidates[0]
    assert set(chosen.node_ids) == {node.pk for node in nodes}
    assert (chosen.link_bytes_per_second, chosen.link_round_trip_seconds) == (1e9, 2e-4)
    assert (chosen.device_flops_per_second, chosen.device_memory_mib, chosen.device_kind) == (1e13, 24_000, "gpu")
