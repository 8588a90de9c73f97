"""Commitments to computed activations: about eight bytes a token that only a node that computed the model can write.

The method is TOPLOC's (Ong et al. 2025, arXiv:2501.16007), written anew. The last hidden states of the prompt are one
chunk, those of each 32 decoded tokens another. Of each chunk the `TOP_K` entries largest in magnitude are kept, as
bfloat16, and a polynomial over a prime field is laid through (index, value): 2 + 2 * 128 bytes a chunk, from which the
indices are left out. The verifier computes the same hidden states in one forward pass, takes its own top entries, and
evaluates the polynomial at their indices: if both computed the same, the values are the same but for rounding; at an
index that the other side did not have, the polynomial gives noise.

One difference to TOPLOC: two values are compared by their distance in units of the last place, not by exponent first
and mantissa after, so that a value beside a power of two which rounds to its other side is near, as it is.

Beside the chunks are digests of the request and of its result (`Binding`), so that a replica that received another
prompt, or loaded other weights, reports so itself; if it forges these digests, the chunks show it.

What this does not show is how the tokens were drawn: see engines/souk/sampling.py for that.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

TOP_K: Final = 128
CHUNK_TOKENS: Final = 32
PRIME: Final = 65_497  # above every finite bfloat16's bits; a coefficient is two bytes
MODULUS_TRIES_MAX: Final = 4096
NEAR_ULPS: Final = 128  # one power of two: beyond it two values have nothing to do with each other
CHUNKS_MAX: Final = 1 << 16
COMMITMENT_BYTES_MAX: Final = 16 * 1024 * 1024
DIGEST_BYTES: Final = 16

_MAGIC: Final = b"SKC1"
_HEAD: Final = struct.Struct(">4sBIII")  # magic, dtype, hidden size, prompt tokens, decoded rows
_DTYPES: Final = ("float32", "bfloat16", "float16")

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class BadCommitment(ValueError):
    """These bytes are no commitment."""


@dataclass(frozen=True)
class Binding:
    """Digests of the request and of its result."""

    prompt: bytes  # the token ids that were read
    weights: bytes  # the model's files
    sampling: bytes  # how the tokens were drawn
    output: bytes  # the token ids that were written

    @classmethod
    def of(
        cls, prompt_ids: Sequence[int], weights_digest: str, sampling: Mapping[str, Any], output_ids: Sequence[int]
    ) -> Binding:
        """From the things themselves; `sampling` is JSON."""
        words = json.dumps(dict(sampling), sort_keys=True, separators=(",", ":"))
        return cls(
            prompt=_digest("prompt", _ids(prompt_ids)),
            weights=_digest("weights", weights_digest.encode()),
            sampling=_digest("sampling", words.encode()),
            output=_digest("output", _ids(output_ids)),
        )

    def differences(self, other: Binding) -> list[str]:
        """Names of what is not the same."""
        return [
            name for name in ("prompt", "weights", "sampling", "output") if getattr(self, name) != getattr(other, name)
        ]


@dataclass(frozen=True)
class Commitment:
    """A commitment, read: the chunks' polynomials, lowest coefficient first, each with its modulus."""

    dtype: str
    hidden_size: int
    prompt_tokens: int
    decoded: int  # rows: one fewer than the tokens written, since the model does not read the last one
    binding: Binding
    chunks: tuple[tuple[int, Ints], ...]


@dataclass(frozen=True)
class ChunkFinding:
    """How far one chunk is from what was computed again; errors are in units of bfloat16's last place."""

    values: int
    missed: int  # of them with nothing near in the commitment
    error_mean: float  # of those that are near
    error_median: float


class Committer:
    """Takes hidden states as they are computed, and keeps only what a commitment needs of them."""

    def __init__(self, hidden_size: int, dtype: str) -> None:
        if dtype not in _DTYPES:
            raise ValueError(f"no commitments in {dtype}: {', '.join(_DTYPES)}")
        self._hidden_size, self._dtype = hidden_size, dtype
        self._prompt, self._chunk = _Top(), _Top()
        self._prompt_tokens = self._decoded = 0
        self._chunks: list[bytes] = []

    def add_prompt(self, rows: Floats) -> None:
        """The next rows of the prompt, [tokens, hidden size]; before the first decoded one."""
        self._prompt.add(rows.reshape(-1), self._prompt_tokens * self._hidden_size)
        self._prompt_tokens += rows.shape[0]

    def add_decoded(self, row: Floats) -> None:
        """The hidden state of one decoded token, [hidden size]."""
        self._chunk.add(row.reshape(-1), (self._decoded % CHUNK_TOKENS) * self._hidden_size)
        self._decoded += 1
        if self._decoded % CHUNK_TOKENS == 0:
            self._close_chunk()

    def finish(self, binding: Binding) -> bytes:
        """The commitment; call it once."""
        if self._decoded % CHUNK_TOKENS:
            self._close_chunk()
        head = _HEAD.pack(_MAGIC, _DTYPES.index(self._dtype), self._hidden_size, self._prompt_tokens, self._decoded)
        digests = binding.prompt + binding.weights + binding.sampling + binding.output
        return b"".join([head, digests, _encode(self._prompt), *self._chunks])

    def _close_chunk(self) -> None:
        self._chunks.append(_encode(self._chunk))
        self._chunk = _Top()


def read_commitment(data: bytes) -> Commitment:
    """Parse it; raises BadCommitment for anything that `Committer` does not write."""
    start = _HEAD.size + 4 * DIGEST_BYTES
    if len(data) < start or len(data) > COMMITMENT_BYTES_MAX:
        raise BadCommitment(f"{len(data)} bytes")
    magic, dtype, hidden_size, prompt_tokens, decoded = _HEAD.unpack_from(data)
    if magic != _MAGIC or dtype >= len(_DTYPES) or not hidden_size or not prompt_tokens:
        raise BadCommitment("its head is not one")
    digests = [data[_HEAD.size + n * DIGEST_BYTES :][:DIGEST_BYTES] for n in range(4)]
    rows = [prompt_tokens, *_chunk_rows(decoded)]
    if len(rows) > CHUNKS_MAX:
        raise BadCommitment(f"{len(rows)} chunks")
    sizes = [min(TOP_K, count * hidden_size) for count in rows]
    if len(data) != start + sum(2 + 2 * size for size in sizes):
        raise BadCommitment(f"{len(data)} bytes for {prompt_tokens} tokens read and {decoded} decoded")
    chunks = []
    for size in sizes:
        words = np.frombuffer(data, dtype=">u2", count=1 + size, offset=start).astype(np.int64)
        modulus, coefficients = int(words[0]), words[1:]
        if modulus < 1 or modulus > PRIME or (coefficients >= PRIME).any():
            raise BadCommitment("a number is outside the field")
        chunks.append((modulus, coefficients))
        start += 2 + 2 * size
    return Commitment(_DTYPES[dtype], hidden_size, prompt_tokens, decoded, Binding(*digests), tuple(chunks))


def compare(commitment: Commitment, prompt_rows: Floats, decoded_rows: Floats) -> list[ChunkFinding]:
    """How far each chunk is from these hidden states, computed again: the prompt's first.

    Shapes [tokens, hidden size]; raises BadCommitment where they are not those of the commitment.
    """
    expected = (commitment.prompt_tokens, commitment.decoded, commitment.hidden_size, commitment.hidden_size)
    found = (prompt_rows.shape[0], decoded_rows.shape[0], prompt_rows.shape[1], decoded_rows.shape[1])
    if expected != found:
        raise BadCommitment(f"it has {expected[:2]} rows of {expected[2]}, not {found[:2]} of {found[2]}")
    pieces = [prompt_rows]
    pieces += [decoded_rows[n : n + CHUNK_TOKENS] for n in range(0, commitment.decoded, CHUNK_TOKENS)]
    return [_compare_chunk(chunk, piece) for chunk, piece in zip(commitment.chunks, pieces, strict=True)]


def _compare_chunk(chunk: tuple[int, Ints], rows: Floats) -> ChunkFinding:
    modulus, coefficients = chunk
    top = _Top()
    top.add(rows.reshape(-1), 0)
    claimed = _evaluate(coefficients, top.indices % modulus)
    errors = np.abs(_ordered(claimed) - _ordered(_bits(top.values)))
    near = errors[errors <= NEAR_ULPS]
    mean, median = (float(near.mean()), float(np.median(near))) if near.size else (float(NEAR_ULPS),) * 2
    return ChunkFinding(len(errors), int(len(errors) - near.size), mean, median)


class _Top:
    """The `TOP_K` entries largest in magnitude of what was added; among equals the first."""

    def __init__(self) -> None:
        self.indices: Ints = np.empty(0, dtype=np.int64)
        self.values: Floats = np.empty(0, dtype=np.float32)

    def add(self, values: Floats, offset: int) -> None:
        values = np.nan_to_num(values, nan=0.0)  # what is not finite must not decide what the largest are
        magnitudes = np.abs(values)
        if len(values) > TOP_K:  # all that equal the least of the top stay in until the exact cut below
            least = np.partition(magnitudes, len(values) - TOP_K)[len(values) - TOP_K]
            kept = np.flatnonzero(magnitudes >= least)
        else:
            kept = np.arange(len(values))
        indices = np.concatenate([self.indices, kept + offset])
        joined = np.concatenate([self.values, values[kept]])
        order = np.lexsort((indices, -np.abs(joined)))[:TOP_K]
        self.indices, self.values = indices[order], joined[order]


def _encode(top: _Top) -> bytes:
    modulus = _injective_modulus(top.indices)
    coefficients = _interpolate(top.indices % modulus, _bits(top.values))
    return np.concatenate([[modulus], coefficients]).astype(">u2").tobytes()


def _injective_modulus(indices: Ints) -> int:
    """The largest modulus within the field under which no two of the indices fall together."""
    for modulus in range(PRIME, PRIME - MODULUS_TRIES_MAX, -1):
        if np.unique(indices % modulus).size == indices.size:
            return modulus
    raise ValueError("no modulus keeps the indices apart")


def _interpolate(points: Ints, values: Ints) -> Ints:
    """Coefficients, lowest first, of the polynomial through (points, values): Newton's form, multiplied out."""
    count = len(points)
    differences = values % PRIME
    for step in range(1, count):
        below = _inverse((points[step:] - points[:-step]) % PRIME)
        differences[step:] = (differences[step:] - differences[step - 1 : -1]) % PRIME * below % PRIME
    coefficients = np.zeros(count, dtype=np.int64)
    for index in range(count - 1, -1, -1):  # Horner's rule on polynomials: c <- c * (x - point) + difference
        shifted = np.concatenate([[0], coefficients[:-1]])
        coefficients = (shifted - points[index] * coefficients) % PRIME
        coefficients[0] = (coefficients[0] + differences[index]) % PRIME
    return coefficients


def _inverse(values: Ints) -> Ints:
    """Of each its inverse in the field: its (PRIME - 2)nd power, by Fermat."""
    result, power, exponent = np.ones_like(values), values, PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * power % PRIME
        power, exponent = power * power % PRIME, exponent >> 1
    return result


def _evaluate(coefficients: Ints, points: Ints) -> Ints:
    result = np.zeros_like(points)
    for coefficient in coefficients[::-1]:
        result = (result * points + coefficient) % PRIME
    return result


def _bits(values: Floats) -> Ints:
    """The bits of each as bfloat16, rounded to nearest, ties to even; what would round to infinity stays finite."""
    words = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.int64)
    rounded = (words + 0x7FFF + ((words >> 16) & 1)) >> 16
    return np.where((rounded & 0x7FFF) >= 0x7F80, (rounded & 0x8000) | 0x7F7F, rounded)


def _ordered(bits: Ints) -> Ints:
    """Integers in the order of the numbers whose bits these are, one apart where those are one unit apart."""
    magnitude = bits & 0x7FFF
    return np.where(bits & 0x8000, -magnitude, magnitude)


def _chunk_rows(decoded: int) -> list[int]:
    whole, rest = divmod(decoded, CHUNK_TOKENS)
    return [CHUNK_TOKENS] * min(whole, CHUNKS_MAX) + ([rest] if rest else [])


def _digest(label: str, data: bytes) -> bytes:
    return hashlib.sha256(b"souk-commitment-v1\n" + label.encode() + b"\n" + data).digest()[:DIGEST_BYTES]


def _ids(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, dtype=">u4").tobytes()
