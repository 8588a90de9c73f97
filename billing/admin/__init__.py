"""Pages for operators, one module a subject; Django finds them through these imports.

alerts.py          what is wrong
books.py           the ledger; a deposit can be added, once
chain.py           blocks, events and transactions of chains
corrections.py     differences that two people book
disputes.py        disputes, which are decided here, and fines
fiat.py            refunds, card disputes, events of Stripe
invoices.py        invoices and billing details
limits.py          spend limits
payouts.py         payouts, reconciliations, the breaker
prices.py          prices of tokens
promotions.py      given credit and its codes
solvency.py        sealed solvency reports
"""

from billing.admin import (
    alerts,
    books,
    chain,
    corrections,
    disputes,
    fiat,
    invoices,
    limits,
    payouts,
    prices,
    promotions,
    solvency,
)

__all__ = [
    "alerts",
    "books",
    "chain",
    "corrections",
    "disputes",
    "fiat",
    "invoices",
    "limits",
    "payouts",
    "prices",
    "promotions",
    "solvency",
]
