"""What is sealed as owed: every account, of one moment, once; and an owner can prove its own."""

from __future__ import annotations

import zlib
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from billing import tasks
from billing.account_kinds import AccountKind
from billing.books import hash_chain, ledger
from billing.books.chart_of_accounts import open_account
from billing.charging import holds, settlement
from billing.charging.settlement import LeaseCharge
from billing.errors import SolvencyReportNotFound, SolvencyUnprovable
from billing.fields import AMOUNT_MAX
from billing.models import SolvencyChunk, SolvencyReport, Transfer
from billing.proofs.solvency import NO_REPORT, SolvencyBroken, check_accounts, commitment_of, read_report
from billing.solvency import proving, publishing, tree
from billing.solvency.proving import as_document, prove
from billing.solvency.publishing import DAILY_PROOFS_KEPT, PROOFS_KEPT, forget_old_proofs, publish_due
from billing.solvency.totals import solvency
from billing.solvency.tree import LEAVES_PER_CHUNK, Owed, build
from billing.transfer_codes import TransferCode, TransferMode
from marketplace.foundation import clock
from tests.integration.billing.scenes import DOLLAR, fund, past_the_triggers, race
from tests.integration.billing.solvency.scenes import fund_many, proven, publish, whole_proof

pytestmark = pytest.mark.django_db


def settle_a_job(alice: UUID, bob: UUID) -> None:
    job_id = uuid4()
    holds.place_hold(owner_id=alice, job_id=job_id, amount=4 * DOLLAR)
    settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), bob, 2 * DOLLAR)], fee_bps=1000)


def test_everybody_owed_something_can_prove_it_and_the_root_is_the_published_sum(alice: UUID, bob: UUID) -> None:
    settle_a_job(alice, bob)
    holds.place_hold(owner_id=alice, job_id=uuid4(), amount=DOLLAR)
    report = read_report(as_document(publish()))
    dollars = report.of("USD")
    live = solvency()["assets"][0]
    for name in ("owed_to_customers", "owed_to_providers", "in_dispute", "own", "held"):
        assert getattr(dollars, name) == live[name], name
    assert dollars.mirrors == {mirror["kind"]: mirror["ledger"] for mirror in live["mirrors"]}
    assert proven(alice) == {("USD", "customer_available"): 7 * DOLLAR, ("USD", "job_hold"): DOLLAR}
    assert proven(bob) == {("USD", "provider_pending"): 1_800_000}
    assert int(dollars.owed) == 9_800_000 and dollars.leaves == 3


def test_a_report_is_of_the_newest_sealed_transfer_and_nothing_later_counts(alice: UUID, bob: UUID) -> None:
    settle_a_job(alice, bob)
    hash_chain.chain_transfers()
    head = Transfer.objects.order_by("-seq").first()
    fund(alice)
    settle_a_job(alice, bob)  # fees, too, which have no live sum
    assert publishing.publish() is not None
    report, accounts = whole_proof(alice)
    assert (report.transfers.seq, report.transfers.hash) == (head.seq, head.hash)
    assert check_accounts(report, accounts, alice) == {("USD", "customer_available"): 8 * DOLLAR}
    dollars = report.of("USD")
    assert (dollars.own, dollars.held) == ({"fee_revenue": "200000"}, str(10 * DOLLAR))
    publish()
    assert proven(alice) == {("USD", "customer_available"): 16 * DOLLAR}
    assert whole_proof(alice)[0].of("USD").own == {"fee_revenue": "400000"}


def test_money_on_its_way_out_is_owed_until_it_has_arrived(alice: UUID, bob: UUID) -> None:
    source = open_account(AccountKind.CUSTOMER_AVAILABLE, alice)
    clearing = open_account(AccountKind.PAYOUT_CLEARING, alice)
    leaving = ledger.NewTransfer(source, clearing, DOLLAR, TransferCode.PAYOUT, mode=TransferMode.PENDING)
    [pending] = ledger.post([leaving])
    publish()
    assert proven(alice) == {("USD", "customer_available"): 10 * DOLLAR}
    post = ledger.NewTransfer(
        source, clearing, DOLLAR, TransferCode.PAYOUT, mode=TransferMode.POST, pending_id=pending.pk
    )
    ledger.post([post])
    publish()
    assert proven(alice) == {("USD", "customer_available"): 9 * DOLLAR, ("USD", "payout_clearing"): DOLLAR}


def test_each_names_the_one_before_it_and_has_other_salts(alice: UUID) -> None:
    first = publish()
    fund(uuid4())
    second = publish()
    assert (first.number, first.body["previous"]) == (1, NO_REPORT)
    assert (second.number, second.body["previous"]) == (2, first.commitment)
    assert first.commitment == commitment_of(first.body)
    old, new = (whole_proof(alice, number)[1][0] for number in (1, 2))
    assert old.salt != new.salt and proven(alice, 1) == proven(alice, 2)


def test_it_is_sealed_once_there_is_something_new_and_it_is_time(alice: UUID, settings: Any, monkeypatch: Any) -> None:
    settings.SOUK_SOLVENCY_SECONDS = 3600
    assert publish_due() is None  # nothing is sealed
    noon = clock.now().replace(hour=12, minute=0)
    monkeypatch.setattr(clock, "now", lambda: noon)
    tasks.seal_transfers()
    assert SolvencyReport.objects.get().is_daily
    monkeypatch.setattr(clock, "now", lambda: noon + timedelta(minutes=59))
    fund(alice)
    tasks.seal_transfers()
    assert SolvencyReport.objects.count() == 1
    monkeypatch.setattr(clock, "now", lambda: noon + timedelta(minutes=61))
    tasks.seal_transfers()
    assert [report.is_daily for report in SolvencyReport.objects.order_by("number")] == [True, False]
    monkeypatch.setattr(clock, "now", lambda: noon + timedelta(days=2))
    tasks.seal_transfers()
    assert SolvencyReport.objects.count() == 2  # nothing moved


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 700])
def test_however_many_chunks_there_are_every_one_is_proven(db: None, count: int) -> None:
    amounts = [place * 7 + 1 for place in range(count)]
    owners = fund_many(amounts)
    report = publish()
    assert SolvencyChunk.objects.filter(report=report).count() == -(-count // LEAVES_PER_CHUNK)
    for owner, amount in list(zip(owners, amounts, strict=True))[:: max(1, count // 40)]:
        assert proven(owner) == {("USD", "customer_available"): amount}
    assert proven(uuid4()) == {}


def test_an_owner_of_many_accounts_gets_them_in_pages_and_each_once(alice: UUID) -> None:
    [owner, *_] = fund_many([3] * 1500, jobs=True)
    fund_many([5] * 300)
    publish()
    report, accounts = whole_proof(owner)
    assert len(accounts) == 1500 and len({each.job_id for each in accounts}) == 1500
    assert check_accounts(report, accounts, owner) == {("USD", "wallet_held"): 4500}
    with pytest.raises(SolvencyBroken, match="proven twice"):
        check_accounts(report, [*accounts, accounts[0]], owner)
    assert proven(alice) == {("USD", "customer_available"): 10 * DOLLAR}


def test_a_proof_takes_the_same_few_queries_however_many_accounts_there_are(alice: UUID) -> None:
    counts = []
    [owner, *_] = fund_many([3] * 600, jobs=True)
    publish()
    for each in (alice, owner):
        with CaptureQueriesContext(connection) as asked:
            prove(each)
        counts.append(len(asked))
    assert counts == [5, 5]


def test_what_makes_no_tree_is_not_published(alice: UUID, bob: UUID) -> None:
    with past_the_triggers("billing_account") as cursor:
        cursor.execute("ALTER TABLE billing_account DROP CONSTRAINT account_not_overdrawn")
        cursor.execute("UPDATE billing_account SET debits_posted = credits_posted + 7 WHERE owner_id = %s", [alice])
    hash_chain.chain_transfers()
    with pytest.raises(SolvencyUnprovable, match=r"holds -7 of USD"), transaction.atomic():
        publishing.publish()
    assert not SolvencyReport.objects.exists()
    tasks.seal_transfers()  # its failure stops nothing else
    assert not SolvencyReport.objects.exists()


def test_a_hole_in_the_books_is_published_and_found_by_whoever_reads_it(alice: UUID) -> None:
    with past_the_triggers("billing_account") as cursor:
        cursor.execute("UPDATE billing_account SET credits_posted = credits_posted + 7 WHERE owner_id = %s", [alice])
    with pytest.raises(SolvencyBroken, match="the two sides of USD differ"):
        read_report(as_document(publish()))


def test_a_tree_that_lacks_an_account_is_not_published(alice: UUID, bob: UUID, monkeypatch: Any) -> None:
    whole = publishing._accounts
    fund(bob)
    hash_chain.chain_transfers()
    monkeypatch.setattr(publishing, "_accounts", lambda seq: {asset: rows[1:] for asset, rows in whole(seq).items()})
    with pytest.raises(SolvencyUnprovable, match="the accounts hold 10000000 of USD, and 20000000 is owed"):
        publishing.publish()


def test_what_was_published_stays(alice: UUID) -> None:
    report = publish()
    for statement in (
        "UPDATE billing_solvencyreport SET body = '{}'",
        "DELETE FROM billing_solvencyreport",
        "UPDATE billing_solvencychunk SET sum = sum + 1",
    ):
        with pytest.raises(IntegrityError, match="immutable"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute(statement)
    assert SolvencyReport.objects.get() == report


def test_old_trees_are_forgotten_those_of_a_day_later_and_reports_never(alice: UUID, monkeypatch: Any) -> None:
    publish()
    fund(alice)
    publish()
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + PROOFS_KEPT + timedelta(seconds=1))
    assert forget_old_proofs() == 1
    assert proven(alice, 1) == {("USD", "customer_available"): 10 * DOLLAR}
    with pytest.raises(SolvencyReportNotFound, match="no longer kept"):
        proven(alice, 2)
    monkeypatch.setattr(clock, "now", lambda: now + DAILY_PROOFS_KEPT + timedelta(seconds=1))
    assert forget_old_proofs() == 1
    assert not SolvencyChunk.objects.exists() and SolvencyReport.objects.count() == 2


def test_a_tree_that_is_forgotten_while_its_proof_is_made_is_no_longer_kept(alice: UUID, monkeypatch: Any) -> None:
    publish()
    find_places = proving._find_places

    def find_and_forget(*given: Any) -> Any:
        found = find_places(*given)
        SolvencyChunk.objects.all().delete()
        return found

    monkeypatch.setattr(proving, "_find_places", find_and_forget)
    with pytest.raises(SolvencyReportNotFound, match="no longer kept"):
        prove(alice)


@pytest.mark.django_db(transaction=True)
def test_while_another_process_publishes_nothing_is_published(alice: UUID) -> None:
    hash_chain.chain_transfers()
    key = zlib.crc32(publishing.PUBLISHING.encode())
    elsewhere = connection.copy()
    try:
        with elsewhere.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [key])
            assert publish_due() is None
            assert not SolvencyReport.objects.exists()
            cursor.execute("SELECT pg_advisory_unlock(%s)", [key])  # the pool keeps the connection
    finally:
        elsewhere.close()
    assert publish_due() is not None


@pytest.mark.django_db(transaction=True)
def test_two_publishers_at_once_seal_one_chain_of_reports(alice: UUID) -> None:
    hash_chain.chain_transfers()
    made = race([publish_due] * 6)
    assert [each for each in made if isinstance(each, Exception)] == []
    numbers = list(SolvencyReport.objects.order_by("number").values_list("number", flat=True))
    assert numbers == [1]
    assert proven(alice) == {("USD", "customer_available"): 10 * DOLLAR}


@given(
    amounts=st.lists(st.integers(1, AMOUNT_MAX), min_size=1, max_size=40),
    owners=st.integers(1, 5),
    secret=st.binary(min_size=32, max_size=32),
    order=st.randoms(use_true_random=False),
)
@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_tree_follows_from_accounts_and_secret_alone(
    amounts: list[int], owners: int, secret: bytes, order: Any
) -> None:
    ids = [UUID(int=place) for place in range(owners)]
    accounts = [
        Owed(UUID(int=1000 + place), "job_hold", ids[place % owners], UUID(int=place), amount)
        for place, amount in enumerate(amounts)
    ]
    shuffled = order.sample(accounts, len(accounts))
    chunks = build("USD", accounts, secret)
    assert build("USD", shuffled, secret) == chunks
    assert build("USD", accounts, bytes(32)) != chunks or secret == bytes(32)
    stored = [leaf for chunk in chunks for leaf in tree.unpack(chunk.leaves)]
    assert sorted(leaf.node.sum for leaf in stored) == sorted(amounts)
    assert sum(chunk.node.sum for chunk in chunks) == sum(amounts)
