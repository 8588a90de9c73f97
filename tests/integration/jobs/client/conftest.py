"""The fixtures of the client's unit tests: a fake marketplace, and a customer who runs `souk`."""

from __future__ import annotations

from tests.unit.jobs.client.conftest import job_file, market, run, souk

__all__ = ["job_file", "market", "run", "souk"]
