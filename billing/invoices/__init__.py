"""Invoices: issued once a month and organisation from the ledger, shown as JSON, CSV and PDF."""

from billing.invoices.issue import issue_due, issue_month

__all__ = ["issue_due", "issue_month"]
