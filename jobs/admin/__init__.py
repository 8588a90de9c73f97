"""The operator's view of demand, a file a subject; Django finds the pages through these imports."""

from jobs.admin import demand, serving, usage

__all__ = ["demand", "serving", "usage"]
