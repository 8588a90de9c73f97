"""Every way to end has one name."""

from __future__ import annotations

import pytest

from provider_agent.executors.base import Exit
from provider_agent.lease.endings import has_started, last_failure, name_ending
from provider_agent.protocol import Reason

STOP = Reason.CANCELLED_BY_CUSTOMER
CASES = [
    (Exit(code=0), None, True, {}, Reason.COMPLETED),
    (Exit(code=0), None, False, {}, Reason.COMPLETED),
    (Exit(code=64), None, True, {}, Reason.BAD_CONFIG),
    (Exit(code=64), None, False, {}, Reason.EXIT_NONZERO),
    (Exit(code=65), None, True, {}, Reason.BAD_INPUT),
    (Exit(code=70), None, True, {}, Reason.INTERNAL),
    (Exit(code=77), None, True, {}, Reason.OUT_OF_MEMORY),
    (Exit(code=75), STOP, True, {}, STOP),
    (Exit(code=75), None, True, {}, Reason.EXECUTOR_FAILED),
    (Exit(code=1), None, True, {"exit_code": 65}, Reason.BAD_INPUT),
    (Exit(code=1), None, True, {}, Reason.INTERNAL),  # no end of a training: its launcher failed
    (Exit(code=127), None, True, {}, Reason.INTERNAL),
    (Exit(code=1), None, False, {}, Reason.EXIT_NONZERO),
    (Exit(code=137), None, True, {}, Reason.PROCESS_VANISHED),
    (Exit(signal=9), None, True, {}, Reason.PROCESS_VANISHED),
    (Exit(signal=6), None, True, {}, Reason.PROCESS_VANISHED),  # NCCL aborts a rank whose peer was lost
    (Exit(code=134), None, True, {}, Reason.PROCESS_VANISHED),
    (Exit(signal=11), None, True, {}, Reason.PROCESS_VANISHED),
    (Exit(signal=6), None, False, {}, Reason.EXIT_NONZERO),
    (Exit(signal=9), None, False, {}, Reason.EXIT_NONZERO),  # an own command could kill itself to be free,
    (Exit(signal=9), STOP, False, {}, STOP),
    (Exit(signal=11), None, False, {}, Reason.EXIT_NONZERO),
    (Exit(signal=9, out_of_memory=True), None, False, {}, Reason.OUT_OF_MEMORY),
    (Exit(vanished=True), None, False, {}, Reason.PROCESS_VANISHED),
    (Exit(code=0, lease_expired=True), STOP, False, {}, Reason.LEASE_EXPIRED),
]


@pytest.mark.parametrize(("ended", "stop_reason", "is_builtin", "failure", "expected"), CASES)
def test_ending_has_one_name(
    ended: Exit, stop_reason: Reason | None, is_builtin: bool, failure: dict[str, object], expected: Reason
) -> None:
    named = name_ending(ended, stop_reason=stop_reason, is_builtin=is_builtin, failure=failure)
    assert named.reason is expected


def test_last_failure_survives_broken_lines() -> None:
    events = b'{"event":"failed","message":"first"}\nnot json\n{"event":"failed","message":"last","exit_code":65}\n{"ev'
    assert last_failure(events)["message"] == "last"
    assert last_failure(b"") == {}


def test_started_is_seen_however_it_is_spaced() -> None:
    assert has_started(b'{"event": "started", "at": 1}\n')
    assert not has_started(b'{"event":"step"}\n')
    assert not has_started(b'{"event":"preparing","what":"data","seconds":61}\n'), "agents of before wait on"


@pytest.mark.parametrize("ended", [Exit(signal=6), Exit(code=134)])
def test_signal_that_ended_our_own_runtime_stays_in_the_exit_code(ended: Exit) -> None:
    assert name_ending(ended, stop_reason=None, is_builtin=True, failure={}).exit_code == 134
