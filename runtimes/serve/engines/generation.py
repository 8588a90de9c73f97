"""Continuous batching with the sampling of each request, its stop strings, and a bound on its length."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from transformers import ContinuousBatchingConfig, GenerationConfig
from transformers.cli.serving.utils import CBGenerateManager, CBStreamer, _StreamError

from runtimes.serve.engines.listening import Counts, Refused
from runtimes.serve.engines.stops import StopFinder

LATE_SECONDS = 30.0  # how long results of a request that was cancelled may still come, and are dropped
TOP_P_MIN = 1e-6


@dataclass(frozen=True)
class Sampling:
    """How one request's tokens are chosen."""

    temperature: float = 1.0
    top_p: float = 1.0
    stops: tuple[str, ...] = ()

    def as_processors(self, vocabulary: int) -> dict[str, Any]:
        """The batch's parameters: the likeliest token alone where the temperature is 0."""
        if self.temperature == 0:
            return {"temperature": 1.0, "top_k": 1, "top_p": 1.0}
        return {"temperature": self.temperature, "top_k": vocabulary, "top_p": max(self.top_p, TOP_P_MIN)}


@dataclass(frozen=True)
class RequestOptions:
    """The options of a request that transformers' handlers do not support."""

    sampling: Sampling
    wants_use: bool = False
    continues: bool = False


OPTIONS: ContextVar[RequestOptions] = ContextVar("options")  # of the request that is being answered


class Generation(CBGenerateManager):
    """One model's batch. Used in the event loop only; the batch itself runs in a thread of its own."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        base: GenerationConfig,
        batching: ContinuousBatchingConfig,
        counts: Counts,
        *,
        context: int,
        max_tokens: int,
    ) -> None:
        super().__init__(cb_config=batching)
        own = model.generation_config
        samples = bool(getattr(own, "do_sample", False))
        self.temperature: float = own.temperature if samples and own.temperature is not None else 1.0
        self.top_p: float = own.top_p if samples and own.top_p is not None else 1.0
        self._tokenizer, self._counts = tokenizer, counts
        self._context, self._max_tokens = context, max_tokens
        self._vocabulary: int = model.config.vocab_size
        self._end: Any = base.eos_token_id
        self._numbers = itertools.count()
        batch = model.init_continuous_batching(generation_config=base, continuous_batching_config=batching)
        self._batch: Any = batch
        self._cb = batch
        batch.start()
        counts.read_waiting = self._read_waiting

    def generate_streaming(  # noqa: PLR0917 - as the handlers call it
        self,
        model: Any,
        processor: Any,
        inputs: dict[str, Any],
        gen_config: Any,
        request_id: str,
        response_parser: Any = None,
    ) -> tuple[asyncio.Queue[Any], Streamer]:
        """A queue of texts that ends with None, and its streamer. Raises Refused for what does not fit."""
        sampling, ids = self._read_prompt(inputs, gen_config)
        number = f"{request_id}-{next(self._numbers)}"
        queue: asyncio.Queue[Any] = asyncio.Queue()
        streamer = Streamer(
            self._batch,
            number,
            self._tokenizer._tokenizer,
            asyncio.get_running_loop(),
            queue,
            response_parser=response_parser,
        )
        streamer.stop = StopFinder(sampling.stops)
        streamer.on_end = self._count
        self._add(number, ids, sampling, gen_config, streamer.take)
        return queue, streamer

    async def generate_non_streaming(
        self, model: Any, processor: Any, inputs: dict[str, Any], gen_config: Any, request_id: str
    ) -> tuple[str, int, list[int]]:
        """Text, length of the prompt and tokens made. Raises Refused."""
        queue, streamer = self.generate_streaming(model, processor, inputs, gen_config, request_id)
        texts: list[str] = []
        try:
            while (item := await queue.get()) is not None:
                if isinstance(item, _StreamError):
                    raise Refused("The engine failed at this request.", status=500, code="engine_error")
                texts.append(item)
        except asyncio.CancelledError:
            streamer.cancel()
            raise
        return "".join(texts), len(inputs["input_ids"]), streamer.tokens

    def _read_prompt(self, inputs: dict[str, Any], gen_config: Any) -> tuple[Sampling, list[int]]:
        """How to sample, and the prompt; settles how many tokens may follow, for the handlers too."""
        ids: list[int] = list(inputs["input_ids"])
        wanted, room = gen_config.max_new_tokens, self._context - len(ids)
        if room < 1 or (wanted or 1) > room:
            raise Refused(
                f"The context is {self._context} tokens; the request has {len(ids)} and asks for {wanted or 1} more.",
                code="context_length_exceeded",
                param="messages",
            )
        if wanted is not None and wanted > self._max_tokens:
            raise Refused(f"`max_tokens` is at most {self._max_tokens} here.", param="max_tokens")
        gen_config.max_new_tokens = wanted or min(room, self._max_tokens)
        return OPTIONS.get().sampling, ids

    def _add(
        self, number: str, ids: list[int], sampling: Sampling, gen_config: Any, take: Callable[[Any], None]
    ) -> None:
        self._check_alive(number)
        self._batch.register_result_handler(number, take)
        added = self._batch.add_request(
            ids,
            request_id=number,
            max_new_tokens=gen_config.max_new_tokens,
            streaming=True,
            eos_token_id=self._end,
            **sampling.as_processors(self._vocabulary),
        )
        if added is None:
            raise Refused("The engine takes no more requests.", status=503, code="engine_stopping")
        self._counts.input_tokens += len(ids)

    def _read_waiting(self) -> int:
        """Requests that have no place in the batch yet."""
        computing = self._batch.batch_processor  # made by its thread, a moment after the start
        placed = len(computing.scheduler.waiting_requests) if computing is not None else 0
        return placed + int(self._batch.input_queue.qsize())

    def _count(self, tokens: int) -> None:
        self._counts.output_tokens += tokens


class Streamer(CBStreamer):
    """Decodes tokens as they come, up to a stop string."""

    stop: StopFinder
    on_end: Callable[[int], None]
    has_ended = False

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.tokens: list[int] = []

    def take(self, output: Any) -> None:
        """One result of the batch, in the event loop."""
        if self.has_ended:
            return
        try:
            self.put(output)
            if output.error is not None:
                self._queue.put_nowait(_StreamError("the engine failed at this request"))
                self._finish()
            elif self.stop.is_found:
                self.cancel()
            elif output.is_finished():
                self._emit(self.stop.flush())
                self._finish()
        except Exception as error:  # whatever it is, it is this request's alone
            self._queue.put_nowait(_StreamError(type(error).__name__))
            self._finish()

    def put(self, output: Any) -> None:
        """Decode what is new."""
        new = output.generated_tokens[self._prev_len :]
        self._prev_len = len(output.generated_tokens)
        for token in new:
            self.total_tokens += 1
            self.tokens.append(token)
            text = self._decode_stream.step(self._tokenizer, token)
            if text is not None:
                self._emit(self.stop.feed(text))
            if self.stop.is_found:
                return

    def cancel(self) -> None:
        """End it, here and in the batch; results that are on their way are dropped."""
        if self.has_ended:
            return
        self._finish()
        self._cb.cancel_request(self._request_id)
        handlers = self._cb.output_router.result_handlers
        self._loop.call_later(LATE_SECONDS, handlers.pop, self._request_id, None)

    def _emit(self, text: str) -> None:
        if not text:
            return
        if self._parser is None:
            self._queue.put_nowait(text)
            return
        from transformers.cli.serving.utils import response_events_to_chunks

        for item in response_events_to_chunks(self._parser.feed(text)):
            self._queue.put_nowait(item)

    def _finish(self) -> None:
        self.has_ended = True
        self.on_end(self.total_tokens)
        self.end()
