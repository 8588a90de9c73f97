"""A model that answers one request at a time, alone: so no answer depends on what else was asked.

Matrix products of another size take other paths through a device's kernels and differ in their last bits; a batch of
one has the same size whatever is asked beside it. Several devices answer several requests at once.

What can be promised: on one device model, with the same versions of torch, transformers and the harness, every answer
is the same bit by bit. Between device models sums are added in another order: scores agree to about seven digits before
they are rounded to SCORE_DECIMALS, so almost all are equal then; one that lies on a rounding's edge, or a greedy choice
between two tokens that are equally likely, may still differ. With float64 that is all but impossible.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtimes.contract import sha256_file
from runtimes.evaluate import embed
from runtimes.evaluate.request import EMBED, GENERATE, LIKELIHOOD, ROLLING, Answer, Request, is_answer, rounded
from runtimes.job_files import JobFiles
from runtimes.train.errors import BadData, OutOfMemory, Stopped
from runtimes.train.model import ModelSource, find_model

CONTEXT_DEFAULT = 2048  # of a configuration that does not say how long its sequences may be
CONTEXT_MAX = 1 << 20
# Everything that decides an answer: configuration, weights, tokenizer.
MODEL_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
# Read by MKL and torch when they load: the same kernels on every processor that has AVX2.
SAME_KERNELS = {"MKL_CBWR": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def choose_same_kernels() -> None:
    """Set what must be set before torch is imported; does nothing to what is set already."""
    try:
        has_avx2 = " avx2 " in Path("/proc/cpuinfo").read_text()
    except OSError:
        has_avx2 = False
    for name, value in SAME_KERNELS.items():
        if has_avx2 or name.startswith("CUBLAS"):
            os.environ.setdefault(name, value)


@dataclass(frozen=True)
class Known:
    """A model that is not loaded yet, and what its answers depend on."""

    source: ModelSource
    context: int  # tokens
    digest: str  # SHA-256 of files and settings, in hex

    @property
    def name(self) -> str:
        """What results call it."""
        return self.source.name


def know(name: str, files: JobFiles, *, dtype: str) -> Known:
    """The model of this name with its digest; raises BadData that says what is missing."""
    source = find_model(name, files)
    if source.folder is None or not source.has_weights:
        raise BadData(f"model {name!r} has no weights to evaluate: name a folder with safetensors, such as a result")
    context = _context(source)
    return Known(source, context, _digest(source.folder, f"{dtype} {context}"))


@dataclass(frozen=True)
class Loaded:
    """What a thread computes with."""

    module: Any  # a transformers model
    device: Any


class Model:
    """One model, whole on each device. `answer` may be called from several threads."""

    def __init__(self, known: Known, *, dtype: str, device_kind: str, devices: int, stop: threading.Event) -> None:
        """Load it; raises BadData that says what is missing, and OutOfMemory. Once `stop` is set, none answers."""
        import torch
        from transformers import AutoTokenizer

        torch.use_deterministic_algorithms(True)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        source = known.source
        self.name, self.context, self.digest = source.name, known.context, known.digest
        self.concurrency = devices
        self._stop = stop
        make: Any = AutoTokenizer.from_pretrained
        try:
            self.tokenizer: Any = make(source.folder, trust_remote_code=False, local_files_only=True)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise BadData(f"model {self.name!r} has no tokenizer that can be read: {_first_line(error)}") from error
        places = [torch.device("cpu")]
        if device_kind == "cuda":
            places = [torch.device("cuda", index) for index in range(devices)]
        self._loaded = [Loaded(_load(source, getattr(torch, dtype), place), place) for place in places]
        module = self._loaded[0].module
        self.parameters = sum(parameter.numel() for parameter in module.parameters())
        # Of the last positions alone: logits of a whole context take more memory than the model.
        self._keeps_last = "logits_to_keep" in inspect.signature(module.forward).parameters
        prefix = self.tokenizer.bos_token_id
        end = self.tokenizer.eos_token_id if self.tokenizer.eos_token_id is not None else module.config.eos_token_id
        ends = end if isinstance(end, list) else [end]
        self._ends = frozenset(int(each) for each in ends if each is not None)
        self._prefix = int(prefix if prefix is not None else min(self._ends, default=0))
        self._taken: dict[int, int] = {}  # thread -> index of its device
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Answer:
        """The answer as JSON keeps it; the same in every thread. Raises Stopped, BadData and OutOfMemory."""
        import torch

        compute: dict[str, Any] = {
            LIKELIHOOD: self._likelihood,
            ROLLING: self._rolling,
            GENERATE: self._generate,
            EMBED: self._embed,
        }
        loaded = self._of_this_thread()
        try:
            with torch.inference_mode():
                answer: Answer = compute[request.kind](loaded, *request.arguments)
        except torch.OutOfMemoryError as error:
            raise OutOfMemory(f"a request of {request.kind} does not fit the device: {_first_line(error)}") from error
        if not is_answer(request.kind, answer):
            raise BadData(f"model {self.name!r} computes no finite score: its weights or its training diverged")
        return answer

    def _of_this_thread(self) -> Loaded:
        """The device of the calling thread: they are given out in turn. Each thread computes on one core."""
        import torch

        thread = threading.get_ident()
        with self._lock:
            if thread not in self._taken:
                torch.set_num_threads(1)  # counts for the calling thread
                self._taken[thread] = len(self._taken) % len(self._loaded)
            return self._loaded[self._taken[thread]]

    def _likelihood(self, loaded: Loaded, context: str, continuation: str) -> list[Any]:
        before, after = self._encode_pair(context, continuation)
        score, is_greedy = self._score(loaded, before, after)
        return [rounded(score), is_greedy]

    def _rolling(self, loaded: Loaded, text: str) -> float:
        """The whole text: each token once, in windows of the model's context, as the harness cuts them."""
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

        tokens = self._encode(text)
        windows = get_rolling_token_windows(
            token_list=tokens, prefix_token=self._prefix, max_seq_len=self.context, context_len=1
        )
        pairs = [make_disjoint_window(window) for window in windows]
        return rounded(math.fsum(self._score(loaded, list(before), list(after))[0] for before, after in pairs))

    def _score(self, loaded: Loaded, before: list[int], after: list[int]) -> tuple[float, bool]:
        """Log-likelihood of `after`, in float64 from the model's logits, and whether greedy decoding writes it.

        Where both are longer than the context, the beginning is left out.
        """
        import torch

        if not after:
            return 0.0, True
        tokens = [*(before or [self._prefix]), *after][-(self.context + 1) :]
        after = after[-(len(tokens) - 1) :]
        fed = torch.tensor([tokens[:-1]], device=loaded.device)  # (1, n)
        self._leave_if_stopped()
        output = loaded.module(input_ids=fed, use_cache=False, **self._last(len(after)))
        logits = output.logits[0, -len(after) :].double().cpu()  # (k, V)
        wanted = torch.tensor(after)
        chances = logits.log_softmax(-1).gather(1, wanted[:, None])[:, 0]
        return math.fsum(chances.tolist()), bool((logits.argmax(-1) == wanted).all())

    def _generate(self, loaded: Loaded, context: str, until: list[str], tokens_max: int) -> str:
        """What greedy decoding writes, up to the first of `until`, the end, or `tokens_max` tokens."""
        import torch

        room = max(1, self.context - tokens_max)
        fed = torch.tensor([(self._encode(context) or [self._prefix])[-room:]], device=loaded.device)
        written: list[int] = []
        cache = None
        text = ""
        for _ in range(min(tokens_max, max(1, self.context - fed.shape[1]))):
            self._leave_if_stopped()
            output = loaded.module(input_ids=fed, past_key_values=cache, use_cache=True, **self._last(1))
            cache = output.past_key_values
            token = int(output.logits[0, -1].float().cpu().argmax())
            if token in self._ends:
                break
            written.append(token)
            text = str(self.tokenizer.decode(written, skip_special_tokens=True))
            if any(stop in text for stop in until):
                break
            fed = torch.tensor([[token]], device=loaded.device)
        return min((text.split(stop)[0] for stop in until), key=len, default=text)

    def _embed(self, loaded: Loaded, text: str) -> list[float]:
        """The mean of the last hidden states, in a few dimensions that keep distances."""
        import torch

        tokens = (self._encode(text) or [self._prefix])[-self.context :]
        fed = torch.tensor([tokens], device=loaded.device)
        self._leave_if_stopped()
        output = loaded.module(input_ids=fed, use_cache=False, output_hidden_states=True, **self._last(1))
        states = output.hidden_states[-1][0]  # (n, hidden)
        return embed.project(states.double().mean(0).cpu().tolist())

    def _last(self, count: int) -> dict[str, int]:
        """What asks for the logits of the last `count` positions alone, where the model can do so."""
        return {"logits_to_keep": count} if self._keeps_last else {}

    def _leave_if_stopped(self) -> None:
        """Between two passes: a long text takes many, and the grace after SIGTERM is short."""
        if self._stop.is_set():
            raise Stopped("SIGTERM: this request is not answered")

    def _encode(self, text: str) -> list[int]:
        try:
            return list(self.tokenizer.encode(text, add_special_tokens=False))
        except Exception as error:  # its library raises no narrower one
            raise BadData(f"the tokenizer of {self.name!r} cannot encode a sample: {_first_line(error)}") from error

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """As the harness splits them: blanks at the context's end go to the continuation."""
        blanks = len(context) - len(context.rstrip())
        if blanks:
            context, continuation = context[:-blanks], context[-blanks:] + continuation
        if not context:
            return [], self._encode(continuation)
        before, whole = self._encode(context), self._encode(context + continuation)
        return before, whole[len(before) :]


def _load(source: ModelSource, dtype: Any, place: Any) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    make: Any = AutoModelForCausalLM.from_pretrained
    try:
        module = make(source.folder, dtype=dtype, trust_remote_code=False, use_safetensors=True, local_files_only=True)
        return module.to(place).eval()
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(f"model {source.name!r} does not fit the device: {_first_line(error)}") from error
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise BadData(f"model {source.name!r} cannot be loaded: {_first_line(error)}") from error


def _context(source: ModelSource) -> int:
    found = getattr(source.config.get_text_config(), "max_position_embeddings", None)
    return min(int(found), CONTEXT_MAX) if isinstance(found, int) and found > 1 else CONTEXT_DEFAULT


def _digest(folder: Path, settings: str) -> str:
    """SHA-256 of every file that decides an answer, and of how the model is computed."""
    digest = hashlib.sha256(settings.encode())
    for path in sorted({path for pattern in MODEL_FILES for path in folder.glob(pattern) if path.is_file()}):
        digest.update(f"\n{path.name} {sha256_file(path)}".encode())
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
