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
    ├── BadAssignment          -   wrong signature, another node's, or devices that are not ours
    ├── StaleFence             -   an assignment older than one already seen for a device
    ├── UnsafePath             -   a file name that leaves its folder
    ├── ArtifactDamaged        -   bytes that do not match their SHA-256
    ├── JournalFailed          -   the disk is full, or does not take what must be remembered
    ├── ExecutorFailed         -   the node could not start or watch the program
    ├── ImageUnavailable       -   the container image cannot be had
    ├── RuntimeUnavailable     7   the runtime environment could not be built
    ├── ServiceFailed          9   the agent could not be registered or started
    ├── NotListed              9   the marketplace did not list the node in time
    ├── UpdateRefused          10  a release that is not signed, not whole, older, known as bad, or did not check in
    ├── HostKeyRefused         -   a machine's SSH host key is not confirmed, or has changed
    └── RemoteFailed           -   a machine cannot be reached or worked on through SSH
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import httpx

RETRYABLE_STATUS = frozenset({408, 425, 429})
BODY_CHARACTERS_SHOWN = 300


class AgentError(Exception):
    """The agent could not do what was asked."""

    code: ClassVar[str] = "agent_error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(message or type(self).__doc__ or "")


class Retryable(AgentError):
    """The same call may succeed later."""

    code = "retryable"


class Unreachable(Retryable):
    """The server did not answer."""

    code = "unreachable"
    exit_code = 5


class ServerBusy(Retryable):
    """The server cannot answer now."""

    code = "server_busy"
    exit_code = 5


class ClockSkewed(Retryable):
    """The server's clock differs from ours."""

    code = "clock_skew"
    exit_code = 5

    def __init__(self, message: str, server_time: datetime | None) -> None:
        super().__init__(message)
        self.server_time = server_time


class Fatal(AgentError):
    """Repeating the call changes nothing."""

    code = "fatal"


class Refused(Fatal):
    """The server refused the request."""

    code = "refused"
    exit_code = 4

    def __init__(self, status: int, refusal: str, message: str, details: dict[str, Any]) -> None:
        super().__init__(f"The server refused ({status} {refusal}): {message}")
        self.status = status
        self.refusal = refusal
        self.details = details


class NotEnrolled(Fatal):
    """This data folder holds no enrolled node. Run `souk-agent enrol --server URL --token TOKEN` first."""

    code = "not_enrolled"
    exit_code = 3


class AlreadyEnrolled(Fatal):
    """This data folder holds an enrolled node already. Choose another --data, or `souk-agent retire` it."""

    code = "already_enrolled"
    exit_code = 3


class AgentAlreadyRuns(Fatal):
    """Another agent runs on this data folder. Stop it, or choose another --data."""

    code = "agent_already_runs"
    exit_code = 6


class BadConfig(Fatal):
    """The configuration cannot be used."""

    code = "bad_config"
    exit_code = 2


class BadAssignment(Fatal):
    """The assignment is not one that this node may run."""

    code = "bad_assignment"


class StaleFence(Fatal):
    """The assignment is older than one already seen for one of its devices."""

    code = "stale_fence"


class UnsafePath(Fatal):
    """A file name leaves its folder."""

    code = "unsafe_path"


class ArtifactDamaged(Fatal):
    """The bytes do not match their SHA-256."""

    code = "artifact_damaged"


class JournalFailed(Fatal):
    """The journal could not be written. Free space on the disk of the data folder; what runs goes on meanwhile."""

    code = "journal_failed"


class ExecutorFailed(Fatal):
    """The node could not start or watch the program."""

    code = "executor_failed"


class ImageUnavailable(Fatal):
    """The container image cannot be had."""

    code = "image_unavailable"


class RuntimeUnavailable(Fatal):
    """The runtime environment could not be built."""

    code = "runtime_unavailable"
    exit_code = 7


class ServiceFailed(Fatal):
    """The agent could not be registered or started."""

    code = "service_failed"
    exit_code = 9


class NotListed(Fatal):
    """The marketplace did not list this node in time."""

    code = "not_listed"
    exit_code = 9


class UpdateRefused(Fatal):
    """The release may not be installed here."""

    code = "update_refused"
    exit_code = 10


class HostKeyRefused(Fatal):
    """The machine's SSH host key is not one that somebody confirmed."""

    code = "host_key_refused"


class RemoteFailed(Fatal):
    """The machine cannot be reached through SSH."""

    code = "remote_failed"


def decide(outcome: Exception | httpx.Response) -> AgentError:
    """Name what went wrong with a call: Retryable or Fatal, decided here and nowhere else."""
    if isinstance(outcome, AgentError):
        return outcome
    if isinstance(outcome, httpx.TransportError):
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
