"""An invoice says what the ledger says of its month, has a number without gaps, and is never changed."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import Sum

from billing import invoices
from billing.charging.limits import month_of
from billing.charging.storage import pay_for_storage
from billing.contesting import disputes
from billing.invoices import issue, show
from billing.invoices.issue import contained_tax
from billing.models import BillingDetails, Invoice, InvoiceCounter, Transfer
from marketplace.foundation import clock
from tests.integration.billing.disputes.scenes import settle
from tests.integration.billing.scenes import DOLLAR, fund, race

pytestmark = pytest.mark.django_db
MAY = datetime(2026, 5, 10, 12, tzinfo=UTC)


@pytest.fixture
def at(monkeypatch, settings):
    """Move the clock."""
    settings.SOUK_CHALLENGE_SECONDS = 90 * 86400

    def move(moment):
        monkeypatch.setattr(clock, "now", lambda: moment)
        return moment

    move(MAY)
    return move


def contest(share, to_customer):
    asked = {"customer_id": share.settlement.owner_id, "lease_id": share.lease_id, "text": "No.", "actor": "a@x.org"}
    dispute = disputes.open_dispute(**asked)
    parts = {"to_customer": to_customer, "to_provider": dispute.amount - to_customer, "to_platform": 0}
    disputes.decide(dispute.pk, **parts, text="Yes.", actor="op@example.org")


def of_month(moment, **which):
    start, end = month_of(moment)
    rows = Transfer.objects.filter(created_at__gte=start, created_at__lt=end, **which)
    return int(rows.aggregate(sum=Sum("amount"))["sum"] or 0)


def test_totals_equal_the_ledgers_transfers_of_that_month(at):
    alice, bob = fund(uuid4()), uuid4()
    shares = [settle(alice, bob, charged=amount, held=2 * DOLLAR) for amount in (1_234_567, 1, 999_999)]
    contest(shares[0], 234_567)
    at(MAY + timedelta(days=40))
    settle(alice, bob)  # of June
    assert invoices.issue_due() == 1
    issued = Invoice.objects.get()
    jobs = [share.settlement.job_id for share in shares]
    charged = of_month(MAY, code__in=["provider_pay", "platform_fee"], job_id__in=jobs)
    refunded = of_month(MAY, code="dispute_to_customer", credit__owner_id=alice)
    # The decision pays provider and platform back what was frozen: it charges the customer nothing new.
    assert (issued.charged, issued.refunded) == (2_234_567, refunded) == (charged, 234_567)
    assert issued.total == sum(int(line["amount"]) for line in issued.lines) == 2_000_000
    assert issued.topped_up == of_month(MAY, code="deposit", credit__owner_id=alice) == 10 * DOLLAR
    assert (issued.month, issued.label) == (date(2026, 5, 1), "2026-000001")


def test_a_months_storage_is_one_line_of_no_job(at):
    alice, carol = fund(uuid4()), fund(uuid4())
    settle(alice, uuid4(), charged=DOLLAR)
    for payer, amount in ((alice, 1_000), (alice, 2_345), (carol, 7)):
        pay_for_storage(payer_id=payer, amount=amount, charge_id=uuid4())
    at(MAY + timedelta(days=30))
    pay_for_storage(payer_id=alice, amount=5, charge_id=uuid4())  # of June
    assert invoices.issue_due() == 2
    issued = Invoice.objects.get(owner_id=alice)
    assert issued.charged == issued.total == DOLLAR + 3_345
    assert [(each["what"], each["amount"]) for each in issued.lines if each["job_id"] is None] == [("storage", "3345")]
    assert ["", "storage", "3345"] in [row[2:5] for row in csv.reader(io.StringIO(show.as_csv(issued)))]
    assert show.as_pdf(issued).startswith(b"%PDF")
    assert Invoice.objects.get(owner_id=carol).total == 7


def test_a_refund_of_an_invoiced_job_is_a_credit_note_to_its_invoice(at):
    alice, bob = fund(uuid4()), uuid4()
    share = settle(alice, bob, charged=DOLLAR)
    at(MAY + timedelta(days=30))
    invoices.issue_due()
    contest(share, 400_000)
    at(MAY + timedelta(days=60))
    assert invoices.issue_due() == 1
    note = Invoice.objects.get(kind="credit_note")
    assert (note.credits, note.total, note.number) == (Invoice.objects.get(kind="invoice"), -400_000, 2)
    assert invoices.issue_due() == 0


def test_issuing_again_issues_nothing_and_numbers_have_no_gaps(at):
    bob = uuid4()
    for _ in range(4):
        settle(fund(uuid4()), bob)
    at(MAY + timedelta(days=30))
    assert (invoices.issue_due(), invoices.issue_due()) == (4, 0)
    assert sorted(Invoice.objects.values_list("number", flat=True)) == [1, 2, 3, 4]


def test_a_number_that_was_not_used_is_given_to_the_next(at):
    with pytest.raises(RuntimeError), transaction.atomic():
        alice = fund(uuid4())
        settle(alice, uuid4())
        at(MAY + timedelta(days=30))
        assert len(invoices.issue_month(alice, date(2026, 5, 1))) == 1
        raise RuntimeError
    at(MAY)
    bob = fund(uuid4())
    settle(bob, uuid4())
    at(MAY + timedelta(days=30))
    assert invoices.issue_month(bob, date(2026, 5, 1))[0].number == 1


def test_a_month_that_is_not_over_is_refused(at):
    with pytest.raises(ValueError, match="not over"):
        invoices.issue_month(uuid4(), date(2026, 5, 1))


def test_tax_is_contained_and_the_buyer_is_as_it_was(at):
    alice = fund(uuid4())
    details = BillingDetails.objects.create(owner_id=alice, name="Alice GmbH", tax_id="DE1", tax_bps=1900)
    settle(alice, uuid4(), charged=1_190_000)
    at(MAY + timedelta(days=30))
    invoices.issue_due()
    details.name, details.tax_bps = "Else", 0
    details.save()
    issued = Invoice.objects.get()
    assert (issued.tax, issued.total - issued.tax, issued.buyer["name"]) == (190_000, 1_000_000, "Alice GmbH")
    assert contained_tax(-1_190_000, 1900) == -190_000


@pytest.mark.parametrize("change", ["UPDATE billing_invoice SET charged = charged", "DELETE FROM billing_invoice"])
def test_an_issued_invoice_is_never_changed(at, change):
    settle(fund(uuid4()), uuid4())
    at(MAY + timedelta(days=30))
    invoices.issue_due()
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(change)


def test_json_csv_and_pdf_say_the_same(at):
    alice = fund(uuid4())
    BillingDetails.objects.create(owner_id=alice, name="=cmd()", address="1 Street\nTown")
    for _ in range(60):  # two pages
        settle(alice, uuid4(), charged=1000, held=2000)
    at(MAY + timedelta(days=30))
    invoices.issue_due()
    issued = Invoice.objects.select_related("asset").get()
    answer = show.as_json(issued)
    rows = list(csv.DictReader(io.StringIO(show.as_csv(issued))))
    assert answer["total"] == "60000" == rows[-2]["amount"]
    assert [row["amount"] for row in rows[:-2]] == ["1000"] * 60
    pdf = show.as_pdf(issued)
    assert pdf.startswith(b"%PDF-") and pdf == show.as_pdf(issued)
    assert pdf.count(b"/Type /Page\n") == 2


def test_more_customers_than_one_run_takes_are_issued_by_the_next(at, monkeypatch):
    monkeypatch.setattr(issue, "OWNERS_PER_RUN_MAX", 2)
    for _ in range(5):
        settle(fund(uuid4()), uuid4())
    at(MAY + timedelta(days=30))
    assert [invoices.issue_due() for _ in range(4)] == [2, 2, 1, 0]


def test_an_invoice_that_is_too_long_for_paper_still_has_its_total(at, monkeypatch):
    monkeypatch.setattr(show, "LINES_MAX", 10)
    alice = fund(uuid4())
    for _ in range(60):
        settle(alice, uuid4(), charged=1000, held=2000)
    at(MAY + timedelta(days=30))
    invoices.issue_due()
    drawn = []
    monkeypatch.setattr(show, "_page", lambda canvas, rows: drawn.extend(rows))
    show.as_pdf(Invoice.objects.select_related("asset").get())
    amounts = [right for left, right in drawn if right.startswith("$")]
    assert amounts == ["$0.001"] * 10 + ["$0.05", "$0.06", "$10.00", "$0.00"]  # the rest, the total, paid in, given


@pytest.mark.parametrize(
    "name", ["株式会社", "Ünïcødé", "(a) Tj ET \\) Tj", "a\u202eb", "\x07\x1b[31m", "😀" * 30, "x" * 200, "\n\n"]
)
def test_no_name_breaks_the_paper_or_writes_into_it(at, name):
    alice = fund(uuid4())
    BillingDetails.objects.create(owner_id=alice, name=name, address=name)
    settle(alice, uuid4())
    at(MAY + timedelta(days=30))
    invoices.issue_due()
    assert show.as_pdf(Invoice.objects.select_related("asset").get()).startswith(b"%PDF-")


@pytest.mark.django_db(transaction=True)
def test_two_runs_at_once_issue_each_month_once(at):
    for _ in range(5):
        settle(fund(uuid4()), uuid4())
    at(MAY + timedelta(days=30))
    found = race([invoices.issue_due] * 4)
    assert sum(found) == 5
    assert sorted(Invoice.objects.values_list("number", flat=True)) == [1, 2, 3, 4, 5]
    assert InvoiceCounter.objects.get().last == 5
