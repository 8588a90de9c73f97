"""Do events and top-ups say what they said, and what the ledger says? Checks of `billing.books.verify`, in its form."""

from __future__ import annotations

from typing import Final

# The event that credited a top-up names the deposit; a row that says otherwise than both was rewritten. A sum that is
# no number is null, and differs from what it should be: a cast of it would end the check for all other rows.
_CREDITED: Final = """
    WITH said AS (
        SELECT subject_id AS id, data ->> 'booking' AS booking, data ->> 'paid' AS paid, data ->> 'fee' AS fee
        FROM foundation_event WHERE subject_kind = 'top_up' AND to_state = 'succeeded'
    ),
    credited AS (
        SELECT id, booking, CASE WHEN paid ~ '^-?[0-9]{1,60}$' THEN paid::numeric END AS paid,
               CASE WHEN fee ~ '^-?[0-9]{1,60}$' THEN fee::numeric END AS fee
        FROM said
    )
    SELECT coalesce(t.id, c.id), CASE
        WHEN t.id IS NULL THEN 'was credited by its event, and is gone'
        WHEN c.id IS NULL THEN 'says that it was credited, and no event does'
        WHEN t.state <> 'succeeded' THEN format('is %%s, although an event credited it', t.state)
        WHEN d.id IS NULL THEN format('no deposit has its booking %%s', c.booking)
        ELSE format('says %%s for %%s, fee %%s, tax %%s; its deposit %%s for %%s, its event paid %%s, fee %%s',
                    t.amount, t.owner_id, t.fee, t.tax, d.amount, d.owner_id, c.paid, c.fee)
        END
    FROM (SELECT * FROM billing_topup WHERE state = 'succeeded' OR id IN (SELECT id FROM credited)) t
    FULL JOIN credited c ON c.id = t.id
    LEFT JOIN billing_deposit d ON d.rail = t.rail AND d.reference = c.booking
    WHERE t.id IS NULL OR c.id IS NULL OR t.state <> 'succeeded'
       OR (c.booking IS NOT NULL AND (d.owner_id, d.amount, c.fee, c.paid - d.amount)
                                     IS DISTINCT FROM (t.owner_id, t.amount, t.fee, t.tax))
"""
_DIGEST_OF_EVENT: Final = """
    SELECT id, 'does not say what it said when it was written' FROM foundation_event r
    WHERE row_digest <> foundation_event_digest(r) OR actor_digest <> foundation_actor_digest(r.id, r.actor)
"""

CHECKS: Final = (
    ("top_up", "top_up", _CREDITED),
    ("digest", "event", _DIGEST_OF_EVENT),
)
