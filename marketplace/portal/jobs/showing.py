"""What the page of one job says of it: GET /api/v1/jobs/{id}, and what follows from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import yaml

from jobs.api.job_views import show_job
from jobs.models import Job
from jobs.states import JOB_ENDS, JOB_ON_NODES, LEASE_LIVE, JobState
from jobs.wire import AttemptView, JobView
from marketplace.foundation import clock

BAR_LENGTH: Final = 1_000
HOUR: Final = timedelta(hours=1)
HOURS_TOLD: Final = 365 * 24  # a cap that lasts longer is no news
# What a reader of job files takes for a text without quotes around it, whatever it contains.
PLAIN_TEXT: Final = re.compile(r"[A-Za-z_/][\w./-]*")
WORDS: Final = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


@dataclass(frozen=True)
class ShownJob:
    """One job as its page has it."""

    view: JobView
    spec_text: str  # as a job file

    @property
    def is_over(self) -> bool:
        """Whether it has ended, so that nothing of it changes but its money."""
        return self.view.state in JOB_ENDS

    @property
    def phase(self) -> str:
        """What decides which buttons there are, and whether there is a log."""
        parts = [
            self.view.state,
            *(["cancelling"] if self.view.is_cancelling else []),
            str(self.attempts[0].number if self.attempts else 0),
        ]
        return "-".join(parts)

    @property
    def may_cancel(self) -> bool:
        """Whether ending it is still something to ask for."""
        return not self.is_over and not self.view.is_cancelling

    @property
    def may_have_more(self) -> bool:
        """Whether a higher cap makes it go on."""
        return self.view.state == JobState.PAUSED and self.view.escrow is None

    @property
    def may_repeat(self) -> bool:
        """Whether it can be done again as it is: a wallet would have to sign, and secrets are erased at the end."""
        return self.is_over and self.view.escrow is None and not self.view.spec.get("secrets")

    @property
    def attempts(self) -> list[AttemptView]:
        """The newest first."""
        return self.view.attempts[::-1]

    @property
    def cap_bar(self) -> int:
        """How much of the cap is used up, of BAR_LENGTH."""
        return min(BAR_LENGTH, BAR_LENGTH * self.view.cost_so_far_usd_micros // max(self.view.cap_usd_micros, 1))

    @property
    def steps(self) -> tuple[int, int] | None:
        """Step and steps in all, as the program reported them."""
        step, total = self.view.progress.get("step"), self.view.progress.get("steps_total")
        if not isinstance(step, int) or not isinstance(total, int) or total <= 0:
            return None
        return max(0, min(step, total)), total

    @property
    def loss(self) -> str:
        """The newest, as the program reported it; empty before the first."""
        loss = self.view.progress.get("loss")
        return f"{loss:.4g}" if isinstance(loss, int | float) else ""

    @property
    def step_bar(self) -> int:
        """How much of the steps is done, of BAR_LENGTH."""
        return BAR_LENGTH * self.steps[0] // self.steps[1] if self.steps else 0

    @property
    def rate_usd_micros_per_hour(self) -> int:
        """Of all nodes that it has now."""
        leases = [lease for attempt in self.view.attempts for lease in attempt.leases if lease.state in LEASE_LIVE]
        return sum(lease.rate_usd_micros_per_hour for lease in leases)

    @property
    def cap_lasts_until(self) -> datetime | None:
        """When the cap is used up, if it goes on with the nodes that it has; None where it has none, or not soon."""
        left = self.view.cap_usd_micros - self.view.cost_so_far_usd_micros
        if self.view.state not in JOB_ON_NODES or not self.rate_usd_micros_per_hour or left <= 0:
            return None
        hours = left / self.rate_usd_micros_per_hour
        return clock.now() + hours * HOUR if hours < HOURS_TOLD else None


def shown(job: Job) -> ShownJob:
    """With its newest attempts, in a fixed number of queries."""
    view = show_job(job)
    return ShownJob(view, job_file_text(view.spec))


def job_file_text(spec: dict[str, Any]) -> str:
    """A job file that means this spec."""
    return yaml.dump(spec, Dumper=_JobFileDumper, sort_keys=False, allow_unicode=True, width=100)


class _JobFileDumper(yaml.SafeDumper):
    """Quotes every text that a reader of job files might take for something else: `1e-4` is a number to it."""


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_plain = PLAIN_TEXT.fullmatch(text) is not None and text.lower() not in WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')


_JobFileDumper.add_representer(str, _write_text)
