"""The server of `transformers serve`, put together so that each request gets the options that it names.

Its handlers, its continuous batching and its forms of answers are used as they are; only what would give a caller
other options than its own is replaced: sampling by request, stop strings, continued answers, usage in streams where a
request wants it, a request whose caller disconnected, and a context that is too long. It loads nothing but
safetensors from one folder, text models only, and runs no code from that folder.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from transformers.cli.serving.chat_completion import ChatCompletionHandler
from transformers.cli.serving.completion import CompletionHandler
from transformers.cli.serving.utils import Modality

from runtimes.serve.engines.generation import OPTIONS, Generation
from runtimes.serve.engines.listening import Counts, Refused, add_own_routes, die_with_parent, read_json, serve_app
from runtimes.serve.engines.transformers_request import check_messages, read_options, requested_tokens

PAGE_TOKENS = 32
BATCH_TOKENS_ON_CPU = 512  # the mask of attention is this times the whole cache
CACHE_TOKENS_ON_CPU_MAX = 1 << 17  # so that the mask stays below 256 MiB
MEMORY_SHARE_OF_CACHE = 0.5  # of what the weights leave free, on processors
CONTEXT_MIN = 16
BODY_BYTES_MAX = 256 << 20
REQUESTS_A_BATCH_MAX = 256


hugging_face: Any = transformers  # partly untyped


@dataclass(frozen=True)
class Settings:
    """What the runtime hands over; see TransformersEngine.launch."""

    folder: str
    served_as: str
    device: str
    dtype: str
    quantization: str
    context: int
    max_tokens: int
    in_flight: int
    chat_template: str
    memory_bytes: int


def main(argv: list[str]) -> None:
    """Load the model, start its batching, answer."""
    die_with_parent()
    settings = Settings(**json.loads(argv[0]))
    tokenizer = load_tokenizer(settings)
    model = load_model(settings)
    context, batching = plan_cache(settings, model)
    counts = Counts()
    base = hugging_face.GenerationConfig(
        do_sample=True,
        temperature=0.5,  # these three only call up what samples by request; each request brings its own
        top_p=0.5,
        top_k=model.config.vocab_size,
        eos_token_id=model.generation_config.eos_token_id,
        pad_token_id=model.generation_config.pad_token_id,
        max_new_tokens=settings.max_tokens,
        use_cache=False,
    )
    generation = Generation(model, tokenizer, base, batching, counts, context=context, max_tokens=settings.max_tokens)
    facts = {
        "context": context,
        "vocabulary": model.config.vocab_size,
        "dtype": str(model.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads() if settings.device == "cpu" else None,
    }
    serve_app(make_app(OneModel(settings, model, tokenizer), generation, counts, facts))


def load_tokenizer(settings: Settings) -> Any:
    """The folder's tokenizer, with the template that was chosen for it."""
    tokenizer: Any = hugging_face.AutoTokenizer.from_pretrained(settings.folder, trust_remote_code=False)
    if settings.chat_template.endswith(".jinja"):
        tokenizer.chat_template = Path(settings.chat_template).read_text()
    original = tokenizer.apply_chat_template

    def apply_chat_template(*given: Any, **named: Any) -> Any:
        if OPTIONS.get().continues:
            named |= {"add_generation_prompt": False, "continue_final_message": True}
        return original(*given, **named)

    tokenizer.apply_chat_template = apply_chat_template
    return tokenizer


def load_model(settings: Settings) -> Any:
    """The folder's weights, on the device."""
    dtype = settings.dtype
    if dtype == "auto" and settings.device == "cpu":
        weights = sum(path.stat().st_size for path in Path(settings.folder).glob("*.safetensors"))
        is_roomy = not settings.memory_bytes or weights * 4 < settings.memory_bytes
        dtype = "float32" if is_roomy else "auto"  # processors compute in it fastest
    named: dict[str, Any] = {}
    if settings.quantization == "bitsandbytes":
        named["quantization_config"] = hugging_face.BitsAndBytesConfig(load_in_8bit=True)
    model: Any = hugging_face.AutoModelForCausalLM.from_pretrained(
        settings.folder,
        dtype=dtype if dtype == "auto" else getattr(torch, dtype),
        device_map="cuda:0" if settings.device == "cuda" else "cpu",
        trust_remote_code=False,
        use_safetensors=True,
        **named,
    )
    return model.eval()


def plan_cache(settings: Settings, model: Any) -> tuple[int, Any]:
    """How long a context may be and how many fit at once: on GPUs by their free memory, on processors by ours."""
    batching: dict[str, Any] = {
        "per_request_processors": True,
        "max_requests_per_batch": min(max(2 * settings.in_flight, 8), REQUESTS_A_BATCH_MAX),
    }
    if settings.device == "cuda":
        return settings.context, hugging_face.ContinuousBatchingConfig(**batching)
    config = model.config.get_text_config()
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    page_bytes = PAGE_TOKENS * 2 * config.num_hidden_layers * heads * head * model.dtype.itemsize
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    free = max(settings.memory_bytes - weights, 0) * MEMORY_SHARE_OF_CACHE if settings.memory_bytes else 1 << 30
    pages_that_fit = min(int(free // page_bytes), CACHE_TOKENS_ON_CPU_MAX // PAGE_TOKENS)
    context = min(settings.context, (pages_that_fit - 1) * PAGE_TOKENS)
    if context < CONTEXT_MIN:
        raise MemoryError(f"out of memory: {settings.memory_bytes} bytes leave no room for a context of {CONTEXT_MIN}")
    pages = min(pages_that_fit, settings.in_flight * (-(-context // PAGE_TOKENS) + 1))
    batching |= {"page_size": PAGE_TOKENS, "num_blocks": pages, "max_batch_tokens": BATCH_TOKENS_ON_CPU}
    return context, hugging_face.ContinuousBatchingConfig(**batching, max_memory_percent=1.0)


class OneModel:
    """The handlers' interface for a manager of models: here there is one model, and it stays loaded."""

    def __init__(self, settings: Settings, model: Any, processor: Any) -> None:
        self.force_model = settings.served_as
        self._pair = (model, processor)

    def process_model_name(self, model_id: str) -> str:
        """As it is."""
        return model_id

    def load_model_and_processor(self, *_given: Any, **_named: Any) -> tuple[Any, Any]:
        """The one."""
        return self._pair

    def get_model_modality(self, *_given: Any, **_named: Any) -> Modality:
        """Text alone: a model that sees would have this server fetch whatever address a caller names."""
        return Modality.LLM


class OneGeneration:
    """The handlers' interface for the state of generation."""

    _compile = False

    def __init__(self, generation: Generation) -> None:
        self._generation = generation

    def use_continuous_batching(self, *_given: Any) -> bool:
        """Always."""
        return True

    def get_manager(self, *_given: Any, **_named: Any) -> Generation:
        """The one."""
        return self._generation


class Chat(ChatCompletionHandler):
    """Chat completions with the options of each request."""

    def _validate_request(self, body: dict[str, Any]) -> None:
        check_messages(body.get("messages"))

    def _resolve_model(self, body: dict[str, Any]) -> tuple[str, Any, Any]:
        return resolved(self.model_manager)

    def _build_generation_config(self, body: dict[str, Any], *_given: Any, **_named: Any) -> Any:
        return hugging_face.GenerationConfig(max_new_tokens=requested_tokens(body))

    def _build_chunk_sse(self, *given: Any, usage: Any = None, **named: Any) -> str:
        return with_use(super()._build_chunk_sse(*given, **named), usage)


class Complete(CompletionHandler):
    """Completions with the options of each request."""

    def _validate_request(self, body: dict[str, Any]) -> None:
        if not isinstance(body.get("prompt"), str) or not body["prompt"]:
            raise Refused("`prompt` must be one text that is not empty.", param="prompt")

    def _resolve_model(self, body: dict[str, Any]) -> tuple[str, Any, Any]:
        return resolved(self.model_manager)

    def _build_generation_config(self, body: dict[str, Any], *_given: Any, **_named: Any) -> Any:
        return hugging_face.GenerationConfig(max_new_tokens=requested_tokens(body))

    def _build_chunk_sse(self, *given: Any, usage: Any = None, **named: Any) -> str:
        return with_use(super()._build_chunk_sse(*given, **named), usage)


def resolved(manager: Any) -> tuple[str, Any, Any]:
    """The one model, whatever the request names: that it names this one was checked before."""
    model, processor = manager.load_model_and_processor()
    return manager.force_model, model, processor


def with_use(sse: str, usage: Any) -> str:
    """A line of a stream; the last one is followed by the usage, where the request wants it, and by the end."""
    if usage is None:
        return sse
    last = json.loads(sse.removeprefix("data: ")) | {"choices": [], "usage": usage.model_dump(exclude_none=True)}
    usage_line = f"data: {json.dumps(last, separators=(',', ':'))}\n\n" if OPTIONS.get().wants_use else ""
    return f"{sse}{usage_line}data: [DONE]\n\n"


def make_app(model: OneModel, generation: Generation, counts: Counts, facts: dict[str, Any]) -> FastAPI:
    """The routes; everything else is not there."""
    state = OneGeneration(generation)
    chat: Any = Chat(model_manager=model, generation_state=state)  # type: ignore[arg-type]
    complete: Any = Complete(model_manager=model, generation_state=state)  # type: ignore[arg-type]
    app = FastAPI(openapi_url=None)
    add_own_routes(app, counts, facts, model.force_model)

    @app.get("/health")
    async def health() -> PlainTextResponse:
        return PlainTextResponse("ok" if generation.is_alive() else "dead", 200 if generation.is_alive() else 503)

    async def answer(request: Request, handler: Any) -> Any:
        body = await read_json(request, BODY_BYTES_MAX)
        if body.get("model", model.force_model) != model.force_model:
            raise Refused(f"The model {body['model']!r} is not served here.", status=404, code="model_not_found")
        OPTIONS.set(read_options(body, generation))
        request_id = request.headers.get("x-request-id", "")[:128]
        return await unless_gone(request, handler.handle_request(body, f"chatcmpl-{request_id or uuid.uuid4().hex}"))

    @app.post("/v1/chat/completions", response_model=None)
    async def chat_completions(request: Request) -> Any:
        return await answer(request, chat)

    @app.post("/v1/completions", response_model=None)
    async def completions(request: Request) -> Any:
        return await answer(request, complete)

    return app


async def unless_gone(request: Request, work: Awaitable[Any]) -> Any:
    """What the work returns; it is cancelled if the caller disconnects before."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    answering = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(watch())
    try:
        await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            answering.cancel()
        return await answering
    except asyncio.CancelledError:
        return JSONResponse({}, status_code=499)
    finally:
        watching.cancel()


if __name__ == "__main__":
    main(sys.argv[1:])
