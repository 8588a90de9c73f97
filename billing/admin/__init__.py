"""The operator's view of money, a file a subject; Django finds the pages through these imports."""

from billing.admin import alerts, books, chain, disputes, fiat, invoices, limits, payouts, prices, promotions, solvency

__all__ = [
    "alerts",
    "books",
    "chain",
    "disputes",
    "fiat",
    "invoices",
    "limits",
    "payouts",
    "prices",
    "promotions",
    "solvency",
]
