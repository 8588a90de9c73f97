"""Do the books of the escrow contract follow from its events? Checks of `billing.books.verify`, in its form.

They compare every booked event with the transfers that carry its reference, and the rows of a hold and its leases,
from which bills are made, with each other and with the wallets' accounts.
"""

from __future__ import annotations

from typing import Final

from billing.books.escrow_flows import INWARD, OUTWARD


def _words(names: frozenset[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))


# What came into and left the contract, event by event. What bears no reference of a chain is not looked at.
_EVENTS: Final = f"""
    WITH reported AS (
        SELECT e.id, format('%%s:%%s:%%s', b.chain_id, e.tx_hash, e.log_index) AS reference,
               (e.arguments ->> 'amount')::numeric * CASE WHEN e.name IN ({_words(INWARD)}) THEN 1 ELSE -1 END AS amount
        FROM billing_chainevent e JOIN billing_chainblock b ON b.id = e.block_id
        WHERE b.state = 'final' AND e.processed_at IS NOT NULL AND e.name IN ({_words(INWARD | OUTWARD)})
    ), moved AS (
        SELECT t.external_ref AS reference,
               sum(t.amount * CASE WHEN d.kind = 'chain_escrow' THEN 1 ELSE -1 END) AS amount
        FROM billing_transfer t JOIN billing_account d ON d.id = t.debit_id JOIN billing_account c ON c.id = t.credit_id
        WHERE (d.kind = 'chain_escrow' OR c.kind = 'chain_escrow') AND t.mode IN ('single', 'post')
          AND t.code <> 'correction' AND t.external_ref ~ '^[0-9]+:0x'
        GROUP BY t.external_ref
    )
    SELECT coalesce(reported.id::text, moved.reference),
           format('the chain says %%s, the transfers %%s', coalesce(reported.amount, 0), coalesce(moved.amount, 0))
    FROM reported FULL JOIN moved ON moved.reference = reported.reference
    WHERE coalesce(reported.amount, 0) <> coalesce(moved.amount, 0)
"""  # noqa: S608 - constants of ours
# A stranger who had the id before the job has an account of it, too, with nothing in it (billing/chain/displacing.py).
# One that failed and whose id a stranger took has money of the stranger's: what of it is left, its events show.
_HELD: Final = """
    SELECT h.id, format('is %%s with %%s of %%s settled; its account has %%s', h.state, h.settled, h.amount,
                        coalesce(a.held, 0))
    FROM billing_escrowhold h LEFT JOIN (
        SELECT job_id, asset_id, sum(credits_posted - debits_posted) AS held FROM billing_account
        WHERE kind = 'wallet_held' GROUP BY job_id, asset_id
    ) a ON a.job_id = h.id AND a.asset_id = h.contract_id
    WHERE h.state <> 'failed' AND coalesce(a.held, 0)
          <> CASE WHEN h.state = 'open' THEN h.amount - h.settled ELSE 0 END
"""
_SETTLED: Final = """
    SELECT h.id, format('%%s of it is settled, its leases say %%s', h.settled, coalesce(l.settled, 0))
    FROM billing_escrowhold h LEFT JOIN (
        SELECT hold_id, sum(pending + paid + fee + refunded) AS settled FROM billing_escrowlease GROUP BY hold_id
    ) l ON l.hold_id = h.id
    WHERE h.settled <> coalesce(l.settled, 0)
"""
_PENDING: Final = """
    SELECT c.asset_id, format('%%s waits in its leases, %%s in its accounts', coalesce(l.pending, 0),
                              coalesce(a.pending, 0))
    FROM billing_escrowcontract c
    LEFT JOIN (SELECT h.contract_id, sum(l.pending) AS pending FROM billing_escrowlease l
               JOIN billing_escrowhold h ON h.id = l.hold_id GROUP BY h.contract_id) l ON l.contract_id = c.asset_id
    LEFT JOIN (SELECT asset_id, sum(credits_posted - debits_posted) AS pending FROM billing_account
               WHERE kind = 'wallet_pending' GROUP BY asset_id) a ON a.asset_id = c.asset_id
    WHERE coalesce(l.pending, 0) <> coalesce(a.pending, 0)
"""

CHECKS: Final = (
    ("event", "event", _EVENTS),
    ("escrow_hold", "escrow_hold", _HELD),
    ("escrow_hold", "escrow_hold", _SETTLED),
    ("escrow_pending", "escrow_contract", _PENDING),
)
