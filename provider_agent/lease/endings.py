"""Names the cause of every ending: from an exit code, a signal or a stop to one Reason."""

from __future__ import annotations

import errno
import json
import signal
from dataclasses import dataclass

from provider_agent.errors import AgentError, CheckpointDamaged, ExecutorFailed, ImageUnavailable, Refused
from provider_agent.executors.base import Exit
from provider_agent.protocol import MESSAGE_CHARACTERS_MAX, Reason
from runtimes.contract import PREPARING_FIRST_SECONDS, EventKind, ExitCode, read_preparing

SIGNAL_CODE_BASE = 128
FILES_REFUSED_STATUSES = frozenset({400, 422})  # statuses of a server that can never accept these files

# Codes that the built-in runtimes promise; of an own command they mean nothing to us.
REASON_OF_CODE = {
    ExitCode.OK: Reason.COMPLETED,
    ExitCode.BAD_CONFIG: Reason.BAD_CONFIG,
    ExitCode.BAD_DATA: Reason.BAD_INPUT,
    ExitCode.BAD_CHECKPOINT: Reason.BAD_CHECKPOINT,
    ExitCode.INTERNAL: Reason.INTERNAL,
    ExitCode.OUT_OF_MEMORY: Reason.OUT_OF_MEMORY,
    ExitCode.LOST_PEER: Reason.INTERNAL,  # by its code the server knows that it only followed from another's end
    ExitCode.STOPPED: Reason.EXECUTOR_FAILED,  # the signal did not come from this agent
}


@dataclass(frozen=True)
class Ending:
    """Why an attempt ended, for everyone to read."""

    reason: Reason
    message: str = ""
    exit_code: int | None = None

    def __post_init__(self) -> None:
        """A customer's program may have written the message: it may break no journal, no database, no terminal."""
        clean = "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in self.message)
        object.__setattr__(self, "message", clean[:MESSAGE_CHARACTERS_MAX])


def name_ending(ended: Exit, *, stop_reason: Reason | None, is_builtin: bool, failure: dict[str, object]) -> Ending:
    """The one cause of an ending. `failure` is the runtime's last `failed` event, which names the code."""
    flagged = [
        (ended.lease_expired, Reason.LEASE_EXPIRED),
        (stop_reason is not None, stop_reason),
        (ended.out_of_memory, Reason.OUT_OF_MEMORY),
        (ended.vanished, Reason.PROCESS_VANISHED),
        (ended.code == ExitCode.OK, Reason.COMPLETED),
    ]
    for is_so, reason in flagged:
        if is_so and reason is not None:
            return Ending(reason, ended.message, ended.code)
    if ended.signal is not None:
        return _name_signal(ended.signal, is_builtin)
    return _name_code(ended, is_builtin, failure)


def name_error(error: BaseException, *, has_started: bool) -> Ending:
    """The cause when something went wrong on our side, before the program or around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return Ending(Reason.DISK_FULL, str(error))
    if isinstance(error, ImageUnavailable):
        return Ending(Reason.IMAGE_UNAVAILABLE, str(error))
    if isinstance(error, ExecutorFailed):
        return Ending(Reason.EXECUTOR_FAILED, str(error))
    if isinstance(error, CheckpointDamaged):  # a store need not compare what it takes; the code names the checkpoint
        return Ending(Reason.BAD_CHECKPOINT, str(error), int(ExitCode.BAD_CHECKPOINT))
    if isinstance(error, AgentError) and not has_started:
        return Ending(Reason.INPUT_UNAVAILABLE, str(error))
    return Ending(Reason.INTERNAL, f"{type(error).__name__}: {error}")


def name_refusal(error: Exception, exit_code: int | None) -> Ending:
    """The cause when the output did not reach the server; names that no try will make acceptable are the customer's."""
    is_theirs = error.status in FILES_REFUSED_STATUSES if isinstance(error, Refused) else isinstance(error, ValueError)
    if is_theirs:
        return Ending(Reason.EXIT_NONZERO, f"the output was not kept: {error}", exit_code)
    return Ending(Reason.UPLOAD_FAILED, f"the output could not be uploaded: {error}", exit_code)


def last_failure(events: bytes) -> dict[str, object]:
    """The last `failed` event of an event file's end, or nothing: none that ranks wrote before the last ones began."""
    for line in reversed(events.splitlines()):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        kind = event.get("event") if isinstance(event, dict) else None
        if kind == EventKind.FAILED:
            return dict(event)
        if kind == EventKind.STARTED:
            break
    return {}


def has_started(events: bytes) -> bool:
    """Whether a `started` event is among these lines."""
    return any(b'"event":"started"' in line.replace(b" ", b"") for line in events.splitlines())


def has_prepared(events: bytes) -> bool:
    """Whether a `preparing` event of a work that took PREPARING_FIRST_SECONDS is among these lines."""
    for line in events.splitlines():
        if b'"preparing"' not in line:
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        found = read_preparing(event) if isinstance(event, dict) else None
        if found is not None and found["seconds"] >= PREPARING_FIRST_SECONDS:
            return True
    return False


def _name_code(ended: Exit, is_builtin: bool, failure: dict[str, object]) -> Ending:
    code = ended.code or 0
    message = str(failure.get("message") or ended.message or f"the program ended with exit code {code}")
    if not is_builtin:
        return Ending(Reason.EXIT_NONZERO, message, code)
    if code > SIGNAL_CODE_BASE:  # runtimes.launch says so when a rank was ended by a signal
        return _name_signal(code - SIGNAL_CODE_BASE, is_builtin)
    real = failure.get("exit_code", code)
    code = real if isinstance(real, int) else code
    known = {int(key): reason for key, reason in REASON_OF_CODE.items()}
    return Ending(known.get(code, Reason.INTERNAL), message, code)  # its launcher's own, or the interpreter's


def _name_signal(number: int, is_builtin: bool) -> Ending:
    """A signal that we did not send ended a built-in runtime: the node sent it, or a peer was lost (NCCL aborts then).

    An own command is not believed: it could send itself the signal that makes its work free.
    """
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = str(number)
    message = f"the program was ended by the signal {name}"
    reason = Reason.PROCESS_VANISHED if is_builtin else Reason.EXIT_NONZERO
    return Ending(reason, message, SIGNAL_CODE_BASE + number)
