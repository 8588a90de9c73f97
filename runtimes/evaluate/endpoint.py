"""A model behind an OpenAI-compatible address. Nothing is computed here: each request is one question to it.

What can be promised is less than of a model's own weights: an endpoint may serve something else tomorrow under the same
name, and may answer in batches. So its answers are kept by address, model's name and request, and results say so.

    generate_until          /completions, or /chat/completions with the prompt as one message of a user
    loglikelihood, rolling  /completions with `echo` and `logprobs`; the endpoint's own tokens count (echo.py)
    embed                   never: the map is another model's
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from runtimes.contract import ENDPOINT_KEY_PREFIX
from runtimes.evaluate.answers import LINE_BYTES_MAX
from runtimes.evaluate.config import Endpoint
from runtimes.evaluate.echo import NoScores, read_scores
from runtimes.evaluate.http_client import POST_SECONDS_MAX, Client, Refused
from runtimes.evaluate.request import GENERATE, LIKELIHOOD, ROLLING, Answer, Request, is_answer, rounded
from runtimes.train.errors import BadData, TrainError

STOPS_SENT_MAX = 4  # as OpenAI takes; the text is cut at the others here
TEXT_BYTES_MAX = 1 << 20  # of an answer with a text
TOKEN_CHARACTERS_MAX = 32  # of a text, for each token that it may have: the rest is cut off
LINE_BYTES_SPARE = 200  # of a line that keeps an answer, for what stands beside that
SCORES_BYTES_MIN = 64 * 1024  # that an answer with log-probabilities may have, whatever the text
SCORES_BYTES_A_BYTE = 256  # beside them, for each byte of the text, which may be a token: parsed it takes far more
SCORES_BYTES_MAX = 16 << 20
SHORT_TEXT = "One two"  # is asked first, to see what the endpoint can do
SHORT_START = 3
SCORED = (LIKELIHOOD, ROLLING)


class EndpointModel:
    """Asks one endpoint. `answer` may be called from several threads."""

    parameters = None  # nobody says how many it has

    def __init__(self, endpoint: Endpoint, *, stop: threading.Event) -> None:
        """Connect to nothing yet; raises BadData where its key is not in the environment, or cannot be one.

        Once `stop` is set, it answers nothing.
        """
        self.endpoint, self.name, self.concurrency = endpoint, endpoint.name, endpoint.concurrency
        asked = ["endpoint", endpoint.endpoint, endpoint.model, endpoint.chat]
        self.digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()  # what its answers are kept by
        self._client = Client(endpoint.endpoint, key=_read_key(endpoint), stop=stop)

    def check(self, requests: Iterable[Request], *, until: float) -> None:
        """Ask one tiny request for each way of asking that these requests need; raises BadData, also after `until`.

        `until` by the monotonic clock.
        """
        wanted = list(requests)
        if any(each.kind in SCORED for each in wanted):
            # Without any context a continuation's first token counts, which not every endpoint scores.
            has_bare = any(each.kind == LIKELIHOOD and not each.arguments[0].strip() for each in wanted)
            self._check_scores(0 if has_bare else SHORT_START, seconds=until - time.monotonic())
        if any(each.kind == GENERATE for each in wanted):
            self._check_texts(seconds=until - time.monotonic())

    def answer(self, request: Request) -> Answer:
        """The answer as JSON keeps it. Raises Stopped, and BadData that says what the endpoint does not give."""
        compute: dict[str, Any] = {LIKELIHOOD: self._likelihood, ROLLING: self._rolling, GENERATE: self._generate}
        if request.kind not in compute:
            raise BadData(f"{self.name!r} is an endpoint, which has no answer to {request.kind}")
        with _naming(self.name):
            answer: Answer = compute[request.kind](*request.arguments)
        # One that does not fit its line would make every checkpoint that it is in unreadable.
        if not is_answer(request.kind, answer) or len(json.dumps(answer)) > LINE_BYTES_MAX - LINE_BYTES_SPARE:
            raise BadData(f"{self.name!r} answers with a score or text beyond all bounds")
        return answer

    def _check_scores(self, start: int, *, seconds: float) -> None:
        needed = "tasks of multiple_choice, loglikelihood and loglikelihood_rolling need log-likelihoods of given texts"
        advice = "ask it tasks of generate_until alone, or name a folder with the weights"
        if self.endpoint.chat:
            raise BadData(f"{self.name!r}: {needed}, which no chat gives: {advice}")
        try:
            with _naming(self.name):
                self._scores(SHORT_TEXT, start, seconds=seconds)
        except Refused as error:
            raise BadData(f"{needed} (`echo` with `logprobs`): {error}; {advice}") from error

    def _check_texts(self, *, seconds: float) -> None:
        try:
            with _naming(self.name):
                self._generate(SHORT_TEXT, (), 1, seconds=seconds)
        except Refused as error:
            if self.endpoint.chat:
                raise
            raise BadData(f"{error}; with chat: true, /chat/completions is asked in place of /completions") from error

    def _likelihood(self, context: str, continuation: str) -> list[Any]:
        if not continuation:
            return [0.0, True]
        # As the harness splits them: blanks at the context's end go to the continuation.
        score, is_greedy = self._scores(context + continuation, len(context.rstrip()))
        return [rounded(score), is_greedy]

    def _rolling(self, text: str) -> float:
        """The whole text at once. Its first token counts where the endpoint has put a beginning before it."""
        return rounded(self._scores(text, 0, may_skip_first=True)[0]) if text else 0.0

    def _scores(
        self, text: str, start: int, *, may_skip_first: bool = False, seconds: float = POST_SECONDS_MAX
    ) -> tuple[float, bool]:
        # Of what is written behind the text one token is the least that every server takes.
        body = {"prompt": text, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
        needed = SCORES_BYTES_MIN + SCORES_BYTES_A_BYTE * len(text.encode(errors="replace"))
        choice = self._ask("/completions", body, bytes_max=min(needed, SCORES_BYTES_MAX), seconds=seconds)
        try:
            return read_scores(choice, text, start, may_skip_first=may_skip_first)
        except NoScores as error:
            raise Refused(f"{self.name!r} returns {error}") from error

    def _generate(
        self, context: str, until: tuple[str, ...], tokens_max: int, *, seconds: float = POST_SECONDS_MAX
    ) -> str:
        body: dict[str, Any] = {"max_tokens": tokens_max, "temperature": 0}
        if until:
            body["stop"] = list(until[:STOPS_SENT_MAX])
        if self.endpoint.chat:
            body["messages"] = [{"role": "user", "content": context}]
            choice = self._ask("/chat/completions", body, bytes_max=TEXT_BYTES_MAX, seconds=seconds)
            message = choice.get("message")
            text = message.get("content", 0) if isinstance(message, dict) else 0
            text = "" if text is None else text  # null: the model wrote nothing for its reader
        else:
            body["prompt"] = context
            text = self._ask("/completions", body, bytes_max=TEXT_BYTES_MAX, seconds=seconds).get("text")
        if not isinstance(text, str):
            raise Refused(f"{self.name!r} returns a choice without a text")
        text = self._client.hidden(text).encode(errors="replace").decode()  # half a surrogate pair is in no UTF-8
        text = text[: tokens_max * TOKEN_CHARACTERS_MAX]
        return min((text.split(stop)[0] for stop in until), key=len, default=text)

    def _ask(self, path: str, body: dict[str, Any], *, bytes_max: int, seconds: float) -> dict[str, Any]:
        """The first choice of the answer."""
        found = self._client.post(path, {"model": self.endpoint.model, **body}, bytes_max=bytes_max, seconds=seconds)
        choices = found.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise Refused(f"{self.name!r} returns no choice")
        choice: dict[str, Any] = choices[0]
        return choice


def _read_key(endpoint: Endpoint) -> str | None:
    """The key in this process' environment; raises BadData where it is not there."""
    if endpoint.key is None:
        return None
    key = os.environ.get(ENDPOINT_KEY_PREFIX + endpoint.key)
    if not key:
        raise BadData(f"endpoint {endpoint.name!r}: there is no secret {endpoint.key}")
    return key


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Whatever an answer leads our code to raise is the endpoint's, and is said of it."""
    try:
        yield
    except (TrainError, MemoryError):
        raise
    except Exception as error:
        raise BadData(f"{name!r} answers with what cannot be read: {type(error).__name__}") from error
