"""Continuous batching: in each step some prompts are read, and every answer that is being written gets one token.

One thread does all computing. Answers lie in neighbouring slots from 0 on, so that a step reads one view of the memory;
where one ends, the last one moves into its place. The next slot is the prompt's that is being read now, in pieces, so
that a long prompt does not hold up the answers beside it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from runtimes.serve.commitments import Binding, Committer
from runtimes.serve.engines.souk.errors import TooBusy
from runtimes.serve.engines.souk.model import Model
from runtimes.serve.engines.souk.sampling import Sampling, draw, log_probabilities
from runtimes.serve.engines.souk.text import Texts, Writing

logger = logging.getLogger(__name__)

QUEUE_MAX: Final = 256  # prompts that wait for a slot
CHECKS_MAX: Final = 16  # that wait for a step's end
PREFILL_TOKENS: Final = 512  # of prompts, read between two steps of the answers
IDLE_SECONDS: Final = 1.0

Ending = Literal["stop", "length", "cancelled", "failed"]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Piece:
    """What one token added to an answer; `ending` with the last."""

    text: str
    token: int
    logprobs: tuple[tuple[int, float], ...] = ()  # the token's own first, then the likeliest
    ending: Ending | None = None
    commitment: bytes = b""


@dataclass
class Sequence:
    """One answer that is wanted; `deliver` is called from the computing thread with each piece."""

    prompt: list[int]
    sampling: Sampling
    choice: int
    max_tokens: int
    stops: tuple[str, ...]
    deliver: Callable[[Piece], None]
    logprobs: int | None = None  # how many of the likeliest beside each token
    commits: bool = False
    ignores_end: bool = False
    output: list[int] = field(default_factory=list)
    is_cancelled: bool = False
    read: int = 0  # tokens of the prompt
    writing: Writing = field(init=False)
    committer: Committer | None = None

    def cancel(self) -> None:
        """Its caller no longer waits: it leaves the batch at the next step."""
        self.is_cancelled = True


class Batch:
    """All answers of one model."""

    def __init__(self, model: Model, texts: Texts) -> None:
        self._model, self._texts = model, texts
        self._changed = threading.Condition()
        self._waiting: deque[Sequence] = deque()
        self._checks: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._reading: Sequence | None = None
        self._writing: list[Sequence] = []
        self._is_closing = False
        self.input_tokens = self.output_tokens = 0
        self._thread = threading.Thread(target=self._compute, name="compute", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether anything is computed at all."""
        return self._thread.is_alive()

    @property
    def queued(self) -> int:
        """Answers that wait for a slot."""
        return len(self._waiting)

    def submit(self, sequences: list[Sequence]) -> None:
        """Have these written, all or none. Raises TooBusy."""
        for sequence in sequences:
            sequence.writing = Writing(self._texts, sequence.stops)
            if sequence.commits:
                sequence.committer = Committer(self._model.hidden_size, self._model.dtype)
        with self._changed:
            if len(self._waiting) + len(sequences) > QUEUE_MAX or self._is_closing or not self.is_alive:
                raise TooBusy(f"{len(self._waiting)} answers wait here already", code="engine_busy")
            self._waiting.extend(sequences)
            self._changed.notify()

    def between_steps(self, work: Callable[[], Any]) -> Future[Any]:
        """Have the computing thread do this: no other thread may use its model. Raises TooBusy."""
        future: Future[Any] = Future()
        with self._changed:
            if len(self._checks) >= CHECKS_MAX or self._is_closing or not self.is_alive:
                raise TooBusy(f"{len(self._checks)} checks wait here already", code="engine_busy")
            self._checks.append((work, future))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Stop; requests under way fail."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    # --- the computing thread

    def _compute(self) -> None:
        try:
            while self._wait_for_work():
                self._do_one_check()
                self._read_prompts()
                self._write_one_token_each()
        except BaseException:
            logger.exception("Computing failed.")
            raise
        finally:
            self._fail_all()

    def _wait_for_work(self) -> bool:
        with self._changed:
            while not (self._is_closing or self._waiting or self._reading or self._writing or self._checks):
                self._changed.wait(IDLE_SECONDS)
            return not self._is_closing

    def _do_one_check(self) -> None:
        with self._changed:
            if not self._checks:
                return
            work, future = self._checks.popleft()
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work())
        except Exception as error:  # raised again where the result is awaited
            future.set_exception(error)

    def _read_prompts(self) -> None:
        budget = PREFILL_TOKENS
        while budget > 0 and (sequence := self._reading or self._next_waiting()):
            self._reading = sequence
            if sequence.is_cancelled:
                self._end(sequence, Piece("", -1, ending="cancelled"))
                self._reading = None
                continue
            piece = sequence.prompt[sequence.read : sequence.read + budget]
            slot = len(self._writing)
            computed = self._model.forward(slot, [piece], [sequence.read])
            if sequence.committer:
                sequence.committer.add_prompt(computed.hidden_rows(0))
            sequence.read += len(piece)
            budget -= len(piece)
            self.input_tokens += len(piece)
            if sequence.read == len(sequence.prompt):
                self._reading = None
                self._writing.append(sequence)
                self._take(sequence, computed.logits_rows(0)[-1])
                self._leave()

    def _next_waiting(self) -> Sequence | None:
        with self._changed:
            has_room = len(self._writing) < self._model.slots
            return self._waiting.popleft() if self._waiting and has_room else None

    def _write_one_token_each(self) -> None:
        for sequence in self._writing:
            if sequence.is_cancelled:
                self._end(sequence, Piece("", -1, ending="cancelled"))
        self._leave()
        if not self._writing:
            return
        rows = list(self._writing)
        places = [len(sequence.prompt) + len(sequence.output) - 1 for sequence in rows]
        computed = self._model.forward(0, [[sequence.output[-1]] for sequence in rows], places)
        logits, hidden = computed.logits.float().cpu().numpy(), None
        if any(sequence.committer for sequence in rows):
            hidden = computed.hidden.float().cpu().numpy()
        for row, sequence in enumerate(rows):
            if sequence.committer and hidden is not None:
                sequence.committer.add_decoded(hidden[row, -1])
            self._take(sequence, logits[row, -1])
        self._leave()

    def _take(self, sequence: Sequence, logits: Floats) -> None:
        """Draw the next token of an answer and report it."""
        position = len(sequence.prompt) + len(sequence.output)
        token = draw(logits, sequence.sampling, sequence.choice, position)
        sequence.output.append(token)
        self.output_tokens += 1
        text = sequence.writing.add(token)
        ending: Ending | None = None
        if sequence.writing.is_stopped or (token in self._texts.end_ids and not sequence.ignores_end):
            ending = "stop"
        elif len(sequence.output) >= sequence.max_tokens:
            ending = "length"
        if ending:
            text += sequence.writing.end()
        piece = Piece(text, token, _likeliest(logits, token, sequence.logprobs), ending, self._commit(sequence, ending))
        if ending:
            self._end(sequence, piece)
        else:
            sequence.deliver(piece)

    def _commit(self, sequence: Sequence, ending: Ending | None) -> bytes:
        if not (sequence.committer and ending):
            return b""
        words = sequence.sampling.as_json()
        return sequence.committer.finish(Binding.of(sequence.prompt, self._model.digest, words, sequence.output))

    def _end(self, sequence: Sequence, piece: Piece) -> None:
        sequence.max_tokens = 0  # the mark that _leave reads
        sequence.deliver(piece)

    def _leave(self) -> None:
        """Close the gaps that ended answers left; the prompt that is being read keeps the slot after the last."""
        slot = 0
        while slot < len(self._writing):
            if self._writing[slot].max_tokens:
                slot += 1
                continue
            last = len(self._writing) - 1
            if slot != last:
                moved = self._writing[last]
                self._model.move(last, slot, len(moved.prompt) + len(moved.output))
                self._writing[slot] = moved
            self._writing.pop()
            if self._reading and self._reading.read:
                self._model.move(last + 1, last, self._reading.read)

    def _fail_all(self) -> None:
        with self._changed:
            self._is_closing = True
            left = [*self._writing, *([self._reading] if self._reading else []), *self._waiting]
            checks = list(self._checks)
            self._waiting.clear()
            self._checks.clear()
        for sequence in left:
            sequence.deliver(Piece("", -1, ending="failed"))
        for _, future in checks:
            future.cancel()


def _likeliest(logits: Floats, token: int, count: int | None) -> tuple[tuple[int, float], ...]:
    if count is None:
        return ()
    log = log_probabilities(logits)
    best = np.argsort(-log, kind="stable")[:count]
    return ((token, float(log[token])), *((int(one), float(log[one])) for one in best))
