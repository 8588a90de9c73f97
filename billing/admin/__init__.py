"""The operator's view of money, a file a subject; Django finds the pages through these imports."""

from billing.admin import books, fiat

__all__ = ["books", "fiat"]
