"""Every error of the agent, and the one function that decides whether trying again can help.

AgentError                     exit status 1
├── Retryable                  the same call may succeed later
│   ├── Unreachable            5   no answer from the server
│   ├── ServerBusy             5   408, 425, 429 or 5xx
│   └── ClockSkewed            5   the server refused our time; the offset was learnt from its answer
└── Fatal                      repeating changes nothing
    ├── Refused                4   any other 4xx; keeps status, code and details
    ├── NotEnrolled            3
    ├── AlreadyEnrolled        3
    ├── AgentAlreadyRuns       6
    ├── BadConfig              2
    ├── AssignmentRefused      -   wrong signature, another node's, devices that are not ours, or an unknown runtime
    ├── StaleFence             -   an assignment older than one already seen for a device
    ├── UnsafePath             -   a file name that leaves its folder
    ├── ArtifactDamaged        -   bytes that do not match their SHA-256
    │   └── CheckpointDamaged  -   those of the checkpoint that a built-in runtime resumes from
    ├── JournalFailed          -   the disk is full, or does not take what must be remembered
    ├── ExecutorFailed         -   the node could not start or watch the program
    ├── ImageUnavailable       -   the container image is not available
    ├── RuntimeUnavailable     7   the runtime environment could not be built
    ├── ServiceFailed          9   the agent could not be registered or started
    ├── NotListed              9   the marketplace did not list the node in time
    ├── UpdateRefused          10  a release that is not signed, not whole, older, known as bad, or did not check in
    ├── LoopFailed             11  a loop of the agent failed again and again
    ├── HostKeyRefused         -   a machine's SSH host key is not confirmed, or has changed
    └── RemoteFailed           -   a machine cannot be reached or worked on through SSH
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import httpx

RETRYABLE_STATUS = frozenset({408, 425, 429})
BODY_CHARACTERS_SHOWN = 300
ENROL_COMMAND = "souk-agent enrol --server URL --token TOKEN --executor docker"


class AgentError(Exception):
    """The agent could not do what was asked."""

    code: ClassVar[str] = "agent_error"
    exit_code: ClassVar[int] = 1
    message: ClassVar[str] = "The agent could not do what was asked."

    def __init__(self, message: str = "") -> None:
        super().__init__(message or self.message)


class Retryable(AgentError):
    message = "The same call may succeed later."
    code = "retryable"


class Unreachable(Retryable):
    message = "The server did not answer."
    code = "unreachable"
    exit_code = 5


class ServerBusy(Retryable):
    message = "The server cannot answer now."
    code = "server_busy"
    exit_code = 5


class ClockSkewed(Retryable):
    message = "The server's clock differs from ours."
    code = "clock_skew"
    exit_code = 5

    def __init__(self, message: str, server_time: datetime | None) -> None:
        super().__init__(message)
        self.server_time = server_time


class Fatal(AgentError):
    message = "Repeating the call changes nothing."
    code = "fatal"


class Refused(Fatal):
    message = "The server refused the request."
    code = "refused"
    exit_code = 4

    def __init__(self, status: int, refusal: str, message: str, details: dict[str, Any]) -> None:
        super().__init__(f"The server refused ({status} {refusal}): {message}")
        self.status = status
        self.refusal = refusal
        self.details = details


class NotEnrolled(Fatal):
    message = f"This data folder holds no enrolled node. Run `{ENROL_COMMAND}` first."
    code = "not_enrolled"
    exit_code = 3


class AlreadyEnrolled(Fatal):
    message = "This data folder holds an enrolled node already. Choose another --data, or `souk-agent retire` it."
    code = "already_enrolled"
    exit_code = 3


class AgentAlreadyRuns(Fatal):
    message = "Another agent runs on this data folder. Stop it, or choose another --data."
    code = "agent_already_runs"
    exit_code = 6


class BadConfig(Fatal):
    message = "The configuration cannot be used."
    code = "bad_config"
    exit_code = 2


class AssignmentRefused(Fatal):
    message = "The assignment is not one that this node may run."
    code = "assignment_refused"


class StaleFence(Fatal):
    message = "The assignment is older than one already seen for one of its devices."
    code = "stale_fence"


class UnsafePath(Fatal):
    message = "A file name leaves its folder."
    code = "unsafe_path"


class ArtifactDamaged(Fatal):
    message = "The bytes do not match their SHA-256."
    code = "artifact_damaged"


class CheckpointDamaged(ArtifactDamaged):
    code = "checkpoint_damaged"


class JournalFailed(Fatal):
    message = (
        "The journal could not be written. Free space on the disk of the data folder; what runs goes on meanwhile."
    )
    code = "journal_failed"


class ExecutorFailed(Fatal):
    message = "The node could not start or watch the program."
    code = "executor_failed"


class ImageUnavailable(Fatal):
    message = "The container image cannot be fetched."
    code = "image_unavailable"


class RuntimeUnavailable(Fatal):
    message = "The runtime environment could not be built."
    code = "runtime_unavailable"
    exit_code = 7


class ServiceFailed(Fatal):
    message = "The agent could not be registered or started."
    code = "service_failed"
    exit_code = 9


class NotListed(Fatal):
    message = "The marketplace did not list this node in time."
    code = "not_listed"
    exit_code = 9


class UpdateRefused(Fatal):
    message = "The release may not be installed here."
    code = "update_refused"
    exit_code = 10


class LoopFailed(Fatal):
    message = "A loop of the agent failed again and again."
    code = "loop_failed"
    exit_code = 11


class HostKeyRefused(Fatal):
    message = "The machine's SSH host key is not one that somebody confirmed."
    code = "host_key_refused"


class RemoteFailed(Fatal):
    message = "The machine cannot be reached through SSH."
    code = "remote_failed"


def decide(outcome: Exception | httpx.Response) -> AgentError:
    """Name what went wrong with a call: Retryable or Fatal, decided here and nowhere else."""
    if isinstance(outcome, AgentError):
        return outcome
    if isinstance(outcome, httpx.RequestError):  # of the network, or an answer that a proxy broke
        return Unreachable(f"No answer from the server: {type(outcome).__name__} {outcome}".strip())
    if isinstance(outcome, Exception):
        return Fatal(f"{type(outcome).__name__}: {outcome}")
    code, message, details = _read_error_body(outcome)
    if code == ClockSkewed.code:
        return ClockSkewed(message, _read_time(details.get("server_time")))
    if outcome.status_code in RETRYABLE_STATUS or outcome.status_code >= 500:
        return ServerBusy(f"The server answered {outcome.status_code} {code}: {message}")
    return Refused(outcome.status_code, code, message, details)


def _read_error_body(response: httpx.Response) -> tuple[str, str, dict[str, Any]]:
    """`code`, `message` and `details` of an error answer, whatever a proxy may have put in its place."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return "http_error", response.text[:BODY_CHARACTERS_SHOWN], {}
    details = body.get("details")
    return (
        str(body.get("code", "http_error")),
        str(body.get("message", "")),
        details if isinstance(details, dict) else {},
    )


def _read_time(value: object) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return parsed if parsed.tzinfo else None
