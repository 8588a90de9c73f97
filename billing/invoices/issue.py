"""Issue a month: an invoice an organisation and asset, and a credit note where something older was refunded.

    charged    the transfers of settlements of that month: provider_pay + platform_fee of the organisation's jobs;
               and in one line what it kept in the artifact store
    refunded   what came back in that month for jobs of that month; for older ones it goes into a credit note to theirs

Numbers have no gaps: the year's counter is locked, and raised, in the transaction that writes the invoice.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Max, QuerySet, Sum

from billing.account_kinds import AccountKind
from billing.charging.limits import month_of
from billing.models import BillingDetails, Invoice, InvoiceCounter, Settlement, Transfer
from billing.money import BPS_WHOLE
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock

REFUND_CODES: Final = (TransferCode.DISPUTE_TO_CUSTOMER, TransferCode.FAULT_REFUND, TransferCode.COMPENSATION)
MONTHS_BACK_MAX: Final = 12
OWNERS_PER_RUN_MAX: Final = 10_000
ISSUE_LOCK: Final = 5_270_063  # of the database; one run at a time


@dataclass(frozen=True)
class Line:
    """One job's charge, one refund, or a month's storage (of no job); amounts above zero."""

    job_id: UUID | None
    what: str
    amount: int
    at: datetime

    def as_json(self) -> dict[str, str | None]:
        """Amounts are strings, as everywhere."""
        job_id = str(self.job_id) if self.job_id else None
        return {"job_id": job_id, "what": self.what, "amount": str(self.amount), "at": self.at.isoformat()}


def issue_due(now: datetime | None = None) -> int:
    """Issue every month that is over for each owner with an entry in it, oldest first; how many documents.

    A repeat issues nothing twice, and a server that was away for months catches up.
    """
    months = []
    start, _ = month_of(now or clock.now())
    for _ in range(MONTHS_BACK_MAX):
        start, end = month_of(start - timedelta(days=1))
        months.append((start, end))
    return sum(_issue_all(start, end) for start, end in reversed(months))


def _issue_all(start: datetime, end: datetime) -> int:
    settled = Settlement.objects.filter(created_at__gte=start, created_at__lt=end).values_list("owner_id", flat=True)
    refunded = _refunds(start, end).values_list("credit__owner_id", flat=True)
    # An owner with one document of this month has all: they are issued together. Were they counted, the first of very
    # many would keep the last waiting for ever.
    issued = set(Invoice.objects.filter(month=start.date()).values_list("owner_id", flat=True))
    stored = _storage(start, end).values_list("debit__owner_id", flat=True)
    owners = sorted({*settled.distinct(), *refunded.distinct(), *stored.distinct()} - issued - {None})
    return sum(len(issue_month(owner, start.date())) for owner in owners[:OWNERS_PER_RUN_MAX])


def issue_month(owner_id: UUID, month: date) -> list[Invoice]:
    """The documents of one organisation's month that are not there yet; the month has to be over."""
    start, end = month_of(datetime(month.year, month.month, 1, tzinfo=clock.now().tzinfo))
    if end > clock.now():
        raise ValueError(f"{start:%Y-%m} is not over")
    issued = []
    with transaction.atomic():
        with connection.cursor() as cursor:  # numbers follow time; and nobody else issues this month meanwhile
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [ISSUE_LOCK])
        charges, own, older = _lines(owner_id, start, end)
        for asset_id in sorted({*charges, *own}):
            known = Invoice.objects.filter(
                owner_id=owner_id, month=start.date(), asset_id=asset_id, kind=Invoice.Kind.INVOICE
            )
            if not known.exists():
                issued.append(
                    _write(owner_id, start, end, asset_id=asset_id, charges=charges[asset_id], refunds=own[asset_id])
                )
        for invoice, lines in older:
            if not invoice.credit_notes.filter(month=start.date()).exists():
                issued.append(
                    _write(owner_id, start, end, asset_id=invoice.asset_id, charges=[], refunds=lines, credits=invoice)
                )
    return issued


def _lines(
    owner_id: UUID, start: datetime, end: datetime
) -> tuple[defaultdict[int, list[Line]], defaultdict[int, list[Line]], list[tuple[Invoice, list[Line]]]]:
    """By asset: what was charged, what of it came back; and by earlier invoice: what came back of that."""
    charges: defaultdict[int, list[Line]] = defaultdict(list)
    jobs = Settlement.objects.filter(owner_id=owner_id, created_at__gte=start, created_at__lt=end, charged__gt=0)
    for settlement in jobs.order_by("created_at", "pk"):
        charges[settlement.asset_id].append(Line(settlement.job_id, "job", settlement.charged, settlement.created_at))
    days = _storage(start, end).filter(debit__owner_id=owner_id).order_by("asset_id")
    for asset_id, amount, at in days.values_list("asset_id").annotate(Sum("amount"), Max("created_at")):
        charges[asset_id].append(Line(None, TransferCode.STORAGE, int(amount), at))
    own: defaultdict[int, list[Line]] = defaultdict(list)
    older: defaultdict[Invoice, list[Line]] = defaultdict(list)
    for refund in _refunds(start, end).filter(credit__owner_id=owner_id, job_id__isnull=False).order_by("seq"):
        if refund.job_id is None:
            continue
        line = Line(refund.job_id, refund.code, refund.amount, refund.created_at)
        earlier = _invoice_of(refund.job_id, start)
        if earlier is None:
            own[refund.asset_id].append(line)
        else:
            older[earlier].append(line)
    return charges, own, sorted(older.items(), key=lambda each: (each[0].year, each[0].number))


def _refunds(start: datetime, end: datetime) -> Any:
    to_customers = Transfer.objects.filter(code__in=REFUND_CODES, credit__kind=AccountKind.CUSTOMER_AVAILABLE)
    return to_customers.filter(created_at__gte=start, created_at__lt=end)


def _storage(start: datetime, end: datetime) -> QuerySet[Transfer]:
    return Transfer.objects.filter(code=TransferCode.STORAGE, created_at__gte=start, created_at__lt=end)


def _invoice_of(job_id: UUID, before: datetime) -> Invoice | None:
    """The earlier invoice that charged this job."""
    settlement = Settlement.objects.filter(job_id=job_id, created_at__lt=before).order_by("-created_at").first()
    if settlement is None:
        return None
    month = month_of(settlement.created_at)[0].date()
    return Invoice.objects.filter(
        owner_id=settlement.owner_id, month=month, asset_id=settlement.asset_id, kind=Invoice.Kind.INVOICE
    ).first()


def _write(
    owner_id: UUID,
    start: datetime,
    end: datetime,
    *,
    asset_id: int,
    charges: list[Line],
    refunds: list[Line],
    credits: Invoice | None = None,
) -> Invoice:
    details = BillingDetails.objects.filter(pk=owner_id).first() or BillingDetails(owner_id=owner_id)
    tax_bps = credits.tax_bps if credits else details.tax_bps
    charged, refunded = sum(line.amount for line in charges), sum(line.amount for line in refunds)
    total = charged - refunded
    of_month = {"asset_id": asset_id, "created_at__gte": start, "created_at__lt": end, "credit__owner_id": owner_id}
    now = clock.now()
    return Invoice.objects.create(
        year=now.year,
        number=_next_number(now.year),
        kind=Invoice.Kind.CREDIT_NOTE if credits else Invoice.Kind.INVOICE,
        credits=credits,
        owner_id=owner_id,
        month=start.date(),
        asset_id=asset_id,
        buyer=credits.buyer if credits else _buyer(details),
        seller=dict(settings.SOUK_INVOICE_SELLER),
        lines=[line.as_json() for line in charges]
        + [line.as_json() | {"amount": str(-line.amount)} for line in refunds],
        charged=charged,
        refunded=refunded,
        total=total,
        tax_bps=tax_bps,
        tax=contained_tax(total, tax_bps),
        topped_up=0 if credits else _sum(code=TransferCode.DEPOSIT, **of_month),
        given=0 if credits else _sum(code=TransferCode.PROMOTION, debit__kind=AccountKind.PROMO_EXPENSE, **of_month),
        issued_at=now,
    )


def contained_tax(total: int, tax_bps: int) -> int:
    """What of a total is tax, where it is contained in it: total * rate / (1 + rate), towards zero."""
    tax = abs(total) * tax_bps // (BPS_WHOLE + tax_bps)
    return tax if total >= 0 else -tax


def _next_number(year: int) -> int:
    InvoiceCounter.objects.bulk_create([InvoiceCounter(year=year)], ignore_conflicts=True)
    counter = InvoiceCounter.objects.select_for_update().get(year=year)
    counter.last += 1
    counter.save(update_fields=["last"])
    return counter.last


def _buyer(details: BillingDetails) -> dict[str, str]:
    fields = ("name", "address", "country", "tax_id", "tax_note")
    return {"organisation_id": str(details.owner_id)} | {name: str(getattr(details, name)) for name in fields}


def _sum(**which: Any) -> int:
    return int(Transfer.objects.filter(**which).aggregate(sum=Sum("amount"))["sum"] or 0)
