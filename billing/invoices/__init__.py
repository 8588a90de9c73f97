"""Invoices, once a month and organisation.

issue.py   issue a month from the ledger, with credit notes
show.py    an invoice as JSON, CSV and PDF
"""

from billing.invoices.issue import issue_due, issue_month

__all__ = ["issue_due", "issue_month"]
