"""The model with its memory: a forward pass over any rows of a batch, each at its own place in its own sequence.

The keys and values of all sequences lie in one tensor a layer, a slot each: [slots, heads, length, size]. A pass works
on neighbouring slots and attends to a view of them, so nothing is copied from step to step; what an earlier sequence
left in a slot lies behind the mask. The length grows by doubling, up to the context.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from runtimes.serve.model import has_sliding_windows

FIRST_LENGTH: Final = 256
HASH_CHUNK_BYTES: Final = 1 << 20
DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

Floats = npt.NDArray[np.float32]


class BadModel(Exception):
    """This engine cannot serve that model."""


@dataclass(frozen=True)
class Computed:
    """What a pass gave: the last hidden states, [rows, tokens, hidden size], and logits of each row's last tokens."""

    hidden: torch.Tensor
    logits: torch.Tensor

    def hidden_rows(self, row: int) -> Floats:
        """[tokens, hidden size]"""
        return np.asarray(self.hidden[row].float().cpu().numpy())

    def logits_rows(self, row: int) -> Floats:
        """[tokens kept, vocabulary]"""
        return np.asarray(self.logits[row].float().cpu().numpy())


class Model:
    """A causal language model of `transformers` and its slots. For one thread at a time."""

    def __init__(self, model: Any, *, slots: int, context: int | None, digest: str) -> None:
        config = model.config.get_text_config()
        if has_sliding_windows(config.to_dict()):
            raise BadModel("this engine attends to the whole sequence; the model has sliding windows")
        self._model = model.eval()
        self._hidden: torch.Tensor | None = None
        model.base_model.register_forward_hook(self._keep_hidden)
        made_for = getattr(config, "max_position_embeddings", None) or 2048
        self.context = min(context or made_for, made_for)
        self.digest = digest
        self.vocabulary = int(config.vocab_size)
        self.hidden_size = int(config.hidden_size)
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.slots = slots
        ends = model.generation_config.eos_token_id if model.generation_config else None
        self.end_ids = frozenset(ends if isinstance(ends, list) else [] if ends is None else [ends])
        self._cache = _new_cache(int(config.num_hidden_layers), slots, self.context)

    @torch.inference_mode()
    def forward(self, first_slot: int, tokens: list[list[int]], starts: list[int]) -> Computed:
        """Read each row's tokens from its start on, rows in neighbouring slots; logits of the last token of each."""
        device = self._model.device
        ids = torch.tensor(tokens, device=device)
        positions = torch.tensor(starts, device=device)[:, None] + torch.arange(ids.shape[1], device=device)
        length = max(starts) + ids.shape[1]
        for layer in self._cache.layers:
            layer.aim(first_slot, positions, length)
        mask = torch.arange(length, device=device) <= positions[:, None, :, None]
        answer = self._model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return self._computed(answer.logits)

    @torch.inference_mode()
    def read_whole(self, tokens: list[int], logits_of_last: int) -> Computed:
        """One pass over a sequence, without a slot; logits of its last tokens, so many."""
        ids = torch.tensor([tokens], device=self._model.device)
        return self._computed(self._model(input_ids=ids, use_cache=False, logits_to_keep=logits_of_last).logits)

    @torch.inference_mode()
    def move(self, source: int, target: int, length: int) -> None:
        """What is in one slot is in another."""
        for layer in self._cache.layers:
            layer.move(source, target, length)

    def _keep_hidden(self, _module: Any, _inputs: Any, output: Any) -> None:
        self._hidden = output.last_hidden_state

    def _computed(self, logits: torch.Tensor) -> Computed:
        if self._hidden is None:
            raise BadModel("the model shows no last hidden states")
        hidden, self._hidden = self._hidden, None
        return Computed(hidden, logits)


def load_model(folder: Path, *, device: str, dtype: str, slots: int, context: int | None, digest: str) -> Model:
    """From a folder of safetensors and a configuration; code from the folder is never run."""
    import transformers

    hugging_face: Any = transformers  # partly untyped

    model = hugging_face.AutoModelForCausalLM.from_pretrained(
        folder,
        dtype="auto" if dtype == "auto" else DTYPES[dtype],
        attn_implementation="sdpa",
        use_safetensors=True,
        trust_remote_code=False,
        local_files_only=True,
    ).to(device)
    return Model(model, slots=slots, context=context, digest=digest or folder_digest(folder))


def folder_digest(folder: Path) -> str:
    """SHA-256 over names and contents of what decides the answers: weights, configuration, tokenizer."""
    digest = hashlib.sha256()
    names = {"config.json", "tokenizer.json"}
    for path in sorted(p for p in folder.iterdir() if p.suffix == ".safetensors" or p.name in names):
        one = hashlib.sha256()
        with path.open("rb") as source:
            while chunk := source.read(HASH_CHUNK_BYTES):
                one.update(chunk)
        digest.update(f"{path.name} {one.hexdigest()}\n".encode())
    return digest.hexdigest()


def _new_cache(layers: int, slots: int, context: int) -> Any:
    from transformers import cache_utils

    classes: Any = cache_utils  # partly untyped
    return classes.Cache(layers=[_SlotLayer(slots, context) for _ in range(layers)])


class _SlotLayer:
    """One layer's keys and values of all slots; `aim` says where the next pass writes and what it reads.

    It has the methods of a cache layer of `transformers` that a model calls.
    """

    is_sliding = False
    is_compileable = False
    is_initialized = True

    def __init__(self, slots: int, context: int) -> None:
        self._shape = (slots, context)
        self._keys, self._values = torch.empty(0), torch.empty(0)

    def aim(self, first_slot: int, positions: torch.Tensor, length: int) -> None:
        """The next pass has `positions`, [rows, tokens], in the slots from the first on, and reads up to `length`."""
        self._slots = slice(first_slot, first_slot + positions.shape[0])
        self._rows = torch.arange(first_slot, self._slots.stop, device=positions.device)[:, None]
        self._positions, self._length = positions, length

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, *_args: Any, **_more: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write [rows, heads, tokens, size]; what the pass attends to."""
        self._keys, self._values = self._grown(self._keys, keys), self._grown(self._values, values)
        self._keys[self._rows, :, self._positions] = keys.transpose(1, 2)
        self._values[self._rows, :, self._positions] = values.transpose(1, 2)
        return self._keys[self._slots, :, : self._length], self._values[self._slots, :, : self._length]

    def move(self, source: int, target: int, length: int) -> None:
        """See Model.move."""
        for tensor in (self._keys, self._values):
            tensor[target, :, :length] = tensor[source, :, :length]

    def get_seq_length(self) -> int:
        """Positions and mask are always given, so no caller needs it."""
        return 0

    def _grown(self, old: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        has = old.shape[2] if old.ndim > 1 else 0
        if has >= self._length:
            return old
        slots, context = self._shape
        length = min(max(FIRST_LENGTH, 2 * has, self._length), context)
        new = like.new_zeros((slots, like.shape[1], length, like.shape[3]))
        if has:
            new[:, :, :has] = old
        return new
