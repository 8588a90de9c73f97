"""The server of embeddings: POST /v1/embeddings, in OpenAI's form.

A text's vector is the mean of the last hidden states over its tokens, divided by its length: the way in which most
models for embeddings were trained; a folder of sentence-transformers with another pooling is refused at the start.
Texts of all requests that wait are computed together, the longest with the longest, and what waits is bounded.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse

from runtimes.serve.engines.listening import Counts, Refused, add_own_routes, die_with_parent, read_json, serve_app

TEXTS_A_REQUEST_MAX = 2048  # as OpenAI's
TEXTS_WAITING_MAX = 16_384
TOKENS_A_BATCH_MAX = 16_384  # with what fills the shorter texts up
TEXTS_A_BATCH_MAX = 256
BODY_BYTES_MAX = 64 << 20
POOLING_FILE = "1_Pooling/config.json"  # of sentence-transformers
KNOWN_KEYS = frozenset({"model", "input", "encoding_format", "dimensions", "user"})

hugging_face: Any = transformers  # partly untyped


@dataclass(frozen=True)
class Settings:
    """What the runtime hands over; see EmbedEngine.launch."""

    folder: str
    served_as: str
    device: str
    dtype: str
    context: int


@dataclass(eq=False)
class Waiting:
    """One text's tokens, and the future of its vector."""

    ids: list[int]
    done: asyncio.Future[list[float]] = field(repr=False)


def main(argv: list[str]) -> None:
    """Load the model and answer."""
    die_with_parent()
    settings = Settings(**json.loads(argv[0]))
    check_pooling(Path(settings.folder))
    tokenizer = hugging_face.AutoTokenizer.from_pretrained(settings.folder, trust_remote_code=False)
    dtype = torch.float32 if settings.dtype == "auto" and settings.device == "cpu" else settings.dtype
    model = hugging_face.AutoModel.from_pretrained(
        settings.folder,
        dtype=dtype if dtype in ("auto", torch.float32) else getattr(torch, str(dtype)),
        device_map="cuda:0" if settings.device == "cuda" else "cpu",
        trust_remote_code=False,
        use_safetensors=True,
    ).eval()
    counts = Counts()
    facts = {
        "context": settings.context,
        "vocabulary": model.config.vocab_size,
        "dtype": str(model.dtype).removeprefix("torch."),
        "dimensions": model.config.hidden_size,
    }
    serve_app(make_app(settings, Batches(model, counts), tokenizer, counts, facts))


def check_pooling(folder: Path) -> None:
    """Raises ValueError if a folder requires another vector than the mean."""
    path = folder / POOLING_FILE
    if path.is_file() and not json.loads(path.read_text()).get("pooling_mode_mean_tokens", True):
        raise ValueError("the model's embeddings are not the mean over its tokens, which is all that this engine does")


class Batches:
    """Computes what waits, several texts at once, in one thread."""

    def __init__(self, model: Any, counts: Counts) -> None:
        self._model, self._counts = model, counts
        self._waiting: deque[Waiting] = deque()
        self._more = asyncio.Event()
        self._working: asyncio.Task[None] | None = None
        counts.read_waiting = lambda: len(self._waiting)
        self.padding = int(model.config.pad_token_id or 0)

    def add(self, texts: list[list[int]]) -> list[asyncio.Future[list[float]]]:
        """Futures of the vectors; raises Refused where too much waits already."""
        if len(self._waiting) + len(texts) > TEXTS_WAITING_MAX:
            raise Refused("Too many texts wait already.", status=429, code="engine_busy")
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        loop = asyncio.get_running_loop()
        added = [Waiting(ids, loop.create_future()) for ids in texts]
        self._waiting.extend(added)
        self._more.set()
        return [each.done for each in added]

    async def _work(self) -> None:
        while True:
            await self._more.wait()
            batch = self._take()
            if not batch:
                self._more.clear()
                continue
            try:
                vectors = await asyncio.to_thread(self._compute, [each.ids for each in batch])
            except Exception as error:  # of this batch alone; an engine that is broken is found by its probe
                print(f"embedding failed: {error}", file=sys.stderr)  # noqa: T201 - into the job's log
                for each in batch:
                    if not each.done.done():
                        each.done.set_exception(Refused("The engine failed at this request.", status=500))
                continue
            for each, vector in zip(batch, vectors, strict=True):
                self._counts.input_tokens += len(each.ids)
                if not each.done.done():
                    each.done.set_result(vector)

    def _take(self) -> list[Waiting]:
        """The texts that waited longest, as many as fit; those whose caller left are dropped."""
        batch: list[Waiting] = []
        longest = 0
        while self._waiting and len(batch) < TEXTS_A_BATCH_MAX:
            each = self._waiting[0]
            longest = max(longest, len(each.ids))
            if batch and longest * (len(batch) + 1) > TOKENS_A_BATCH_MAX:
                break
            self._waiting.popleft()
            if not each.done.cancelled():
                batch.append(each)
        return batch

    @torch.inference_mode()
    def _compute(self, texts: list[list[int]]) -> list[list[float]]:
        length = max(map(len, texts))
        ids = torch.tensor([text + [self.padding] * (length - len(text)) for text in texts])  # [texts, length]
        mask = torch.tensor([[1] * len(text) + [0] * (length - len(text)) for text in texts])
        ids, mask = ids.to(self._model.device), mask.to(self._model.device)
        hidden = self._model(input_ids=ids, attention_mask=mask).last_hidden_state.float()  # [texts, length, width]
        weights = mask.unsqueeze(-1).float()
        means = (hidden * weights).sum(1) / weights.sum(1)
        vectors: list[list[float]] = torch.nn.functional.normalize(means, dim=-1).cpu().tolist()
        return vectors


def make_app(settings: Settings, batches: Batches, tokenizer: Any, counts: Counts, facts: dict[str, Any]) -> FastAPI:
    """The routes; everything else is not there."""
    app = FastAPI(openapi_url=None)
    add_own_routes(app, counts, facts, settings.served_as)

    @app.get("/health")
    async def health() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @app.post("/v1/embeddings", response_model=None)
    async def embeddings(request: Request) -> dict[str, Any]:
        body = await read_body(request, settings.served_as)
        texts = await asyncio.to_thread(read_texts, body.get("input"), tokenizer, settings.context, facts["vocabulary"])
        futures = batches.add(texts)
        try:
            vectors = await asyncio.gather(*futures)
        finally:
            for future in futures:
                future.cancel()
        is_packed = body.get("encoding_format") == "base64"
        data = [
            {"object": "embedding", "index": index, "embedding": pack(vector) if is_packed else vector}
            for index, vector in enumerate(vectors)
        ]
        used = sum(map(len, texts))
        usage = {"prompt_tokens": used, "total_tokens": used}
        return {"object": "list", "model": settings.served_as, "data": data, "usage": usage}

    return app


async def read_body(request: Request, served_as: str) -> dict[str, Any]:
    """The request, checked as far as its texts; raises Refused."""
    body = await read_json(request, BODY_BYTES_MAX)
    if body.get("model", served_as) != served_as:
        raise Refused(f"The model {body['model']!r} is not served here.", status=404, code="model_not_found")
    if body.get("dimensions") is not None:
        raise Refused("This engine gives vectors of one size.", code="unsupported_parameter", param="dimensions")
    if body.get("encoding_format", "float") not in ("float", "base64"):
        raise Refused("`encoding_format` is float or base64.", param="encoding_format")
    if unknown := set(body) - KNOWN_KEYS:
        raise Refused(f"Unknown: {', '.join(sorted(unknown)[:5])}.", code="unsupported_parameter")
    return body


def read_texts(given: Any, tokenizer: Any, context: int, vocabulary: int) -> list[list[int]]:
    """The tokens of each text: a text, a list of texts, tokens, or a list of tokens; raises Refused."""
    if isinstance(given, str) or (isinstance(given, list) and given and _is_token(given[0], vocabulary)):
        given = [given]
    if not isinstance(given, list) or not 1 <= len(given) <= TEXTS_A_REQUEST_MAX:
        raise Refused(f"`input` must be a text or 1 to {TEXTS_A_REQUEST_MAX} of them.", param="input")
    texts: list[list[int]] = []
    for each in given:
        if isinstance(each, str) and each:
            texts.append(tokenizer(each)["input_ids"])
        elif isinstance(each, list) and each and all(_is_token(token, vocabulary) for token in each):
            texts.append(each)
        else:
            raise Refused("`input` must hold texts that are not empty, or lists of tokens.", param="input")
        if len(texts[-1]) > context or not texts[-1]:
            message = f"A text has {len(texts[-1])} tokens; from 1 to {context} can be embedded."
            raise Refused(message, code="context_length_exceeded", param="input")
    return texts


def _is_token(value: Any, vocabulary: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < vocabulary


def pack(vector: list[float]) -> str:
    """As OpenAI's clients ask for it: float32, little-endian, base64."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


if __name__ == "__main__":
    main(sys.argv[1:])
