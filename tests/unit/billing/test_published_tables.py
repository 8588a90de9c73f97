"""docs/billing.md says what bills; these tables are compared with the code."""

from __future__ import annotations

from pathlib import Path

from billing.account_kinds import AccountKind
from jobs.states import JOB_ENDS, JobState
from provider_agent.protocol import REASONS, AttemptState

PAGE = (Path(__file__).parents[3] / "docs/billing.md").read_text()


def table(heading: str) -> dict[str, list[str]]:
    """Rows of the table whose first column has this heading: first cell -> the other cells."""
    lines = PAGE.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    rows = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        first, *others = (cell.strip() for cell in line.strip("|").split("|"))
        rows[first.strip("`")] = others
    return rows


def test_every_state_of_an_attempt_is_listed_and_only_running_bills() -> None:
    rows = table("State of the attempt")
    assert list(rows) == [str(state) for state in AttemptState]
    assert [state for state, cells in rows.items() if cells[0] != "no"] == [AttemptState.RUNNING]


def test_every_state_of_a_job_is_listed_and_its_ends_hold_nothing() -> None:
    rows = table("State of the job")
    assert list(rows) == list(JobState.values)
    assert {state for state, cells in rows.items() if cells[1].startswith("none: settled")} == JOB_ENDS


def test_every_reason_is_listed_as_the_code_has_it() -> None:
    rows = table("Reason")
    assert rows == {
        str(reason): [str(outcome.state), str(outcome.billable), str(outcome.fault)]
        for reason, outcome in REASONS.items()
    }


def test_only_kinds_that_exist_are_listed() -> None:
    assert set(table("Account")) <= set(AccountKind.values)
