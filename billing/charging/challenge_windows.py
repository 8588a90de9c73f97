"""How long a customer may contest a provider's pay: SOUK_CHALLENGE_SECONDS, or SOUK_FAST_RELEASE_SECONDS for a record.

An operator who sets SOUK_FAST_RELEASE_SECONDS pays providers within hours whose record allows it:

    work       at least SETTLEMENTS_MIN settlements for CUSTOMERS_MIN others were released in the last RECORD_DAYS, in
               this asset, and the first of them is older than SOUK_PROBATION_DAYS. What counts is over for a whole
               usual window, was paid by nobody who is a member of the provider too, and by no card whose bank has
               taken a payment back or warned of it: such a record costs its builder not even the fee
    complaint  no dispute is open, none was decided for a customer, and nothing was fined in these days; and no
               customer complained of pay that a short window had released already (complain_late) since an operator
               looked
    customer   is not frozen, as after a warning of fraud or a chargeback
    size       all of the provider's pay that is inside a short window stays below PART_BPS of what that record released

So whoever builds a record up to run away with it leaves at most a tenth of it uncontested in each usual window, until
the first customer complains, having paid the platform's fee on all of the record. A window never changes after the
settlement: the bill shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import connection

RECORD_DAYS: Final = 90
SETTLEMENTS_MIN: Final = 100
CUSTOMERS_MIN: Final = 5
PART_BPS: Final = 1_000
COMPLAINT: Final = "late_complaint:"  # of the alert of a provider

# Two settlements of one provider at once would each find room for itself. Locked in the order of their ids.
_LOCK: Final = """
    SELECT pg_advisory_xact_lock(hashtextextended(id::text, 0))
    FROM (SELECT unnest(%(providers)s::uuid[]) AS id ORDER BY 1) providers
"""
# No window ends before its settlement: by where they end, an index leads past the shares of years. What bars a
# customer is asked once a customer, not once a settlement.
_PROVEN: Final = """
    SELECT p.id FROM unnest(%(providers)s::uuid[], %(paid)s::numeric[]) AS p (id, paid)
    JOIN billing_hold h ON h.job_id = %(job_id)s AND h.state = 'open'
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(c.settlements), 0) AS settlements, count(*) AS customers, coalesce(sum(c.paid), 0) AS paid,
               min(c.since) AS since
        FROM (
            SELECT t.owner_id, count(*) AS settlements, sum(s.paid) AS paid, min(t.created_at) AS since
            FROM billing_settlementshare s JOIN billing_settlement t ON t.id = s.settlement_id
            WHERE s.provider_id = p.id AND s.challenge_until >= %(since)s
              AND t.owner_id <> p.id AND t.asset_id = h.asset_id AND t.created_at > %(since)s
              AND t.created_at <= %(whole_window)s AND s.paid > 0 AND s.released_at IS NOT NULL
            GROUP BY t.owner_id
        ) c
        WHERE NOT EXISTS (
              SELECT 1 FROM accounts_membership a JOIN accounts_membership b ON b.user_id = a.user_id
              WHERE a.organisation_id = p.id AND b.organisation_id = c.owner_id
          )
          AND NOT EXISTS (
              SELECT 1 FROM billing_topup u JOIN billing_carddispute d ON d.top_up_id = u.id
              WHERE u.owner_id = c.owner_id AND d.state IN ('open', 'lost')
          )
          AND NOT EXISTS (
              SELECT 1 FROM billing_topup u JOIN billing_fraudwarning w ON w.top_up_id = u.id
              WHERE u.owner_id = c.owner_id AND w.created_at > %(since)s
          )
    ) record
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(s.paid), 0) AS paid
        FROM billing_settlementshare s JOIN billing_settlement t ON t.id = s.settlement_id
        WHERE s.provider_id = p.id AND s.challenge_until >= %(whole_window)s
          AND t.asset_id = h.asset_id AND t.created_at > %(whole_window)s
          AND s.challenge_until < t.created_at + %(window)s
    ) short
    WHERE record.settlements >= %(settlements)s AND record.customers >= %(customers)s
      AND record.since <= %(probation)s AND (short.paid + p.paid) * 10000 <= record.paid * %(bps)s
      AND NOT EXISTS (
          SELECT 1 FROM billing_dispute d
          WHERE d.provider_id = p.id AND (d.closed_at IS NULL OR d.closed_at > %(since)s AND d.to_customer > 0)
      )
      AND NOT EXISTS (SELECT 1 FROM billing_offence o WHERE o.provider_id = p.id AND o.created_at > %(since)s)
      AND NOT EXISTS (
          SELECT 1 FROM billing_account c
          WHERE c.owner_id = h.owner_id AND c.kind = 'customer_available' AND c.is_frozen
      )
      AND NOT EXISTS (SELECT 1 FROM billing_alert a WHERE a.key = %(complaint)s || p.id::text AND a.closed_at IS NULL)
"""


def ends_of(job_id: UUID, paid: Mapping[UUID, int], now: datetime) -> dict[UUID, datetime]:
    """Provider -> when its window in a settlement of this job ends, by what it is paid there (base units).

    In the settlement's transaction, before anything else of it is locked.
    """
    usual = timedelta(seconds=settings.SOUK_CHALLENGE_SECONDS)
    ends = dict.fromkeys(paid, now + usual)
    if settings.SOUK_FAST_RELEASE_SECONDS >= 0 and paid:
        short = now + timedelta(seconds=settings.SOUK_FAST_RELEASE_SECONDS)
        ends |= dict.fromkeys(_proven(job_id, paid, now, usual), short)
    return ends


def _proven(job_id: UUID, paid: Mapping[UUID, int], now: datetime, usual: timedelta) -> set[UUID]:
    values: dict[str, Any] = {
        "job_id": job_id,
        "providers": list(paid),
        "paid": list(paid.values()),
        "since": now - timedelta(days=RECORD_DAYS),
        "probation": now - timedelta(days=settings.SOUK_PROBATION_DAYS),
        "window": usual,
        "whole_window": now - usual,
        "settlements": SETTLEMENTS_MIN,
        "customers": CUSTOMERS_MIN,
        "bps": PART_BPS,
        "complaint": COMPLAINT,
    }
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, values)
        cursor.execute(_PROVEN, values)
        return {row[0] for row in cursor.fetchall()}
