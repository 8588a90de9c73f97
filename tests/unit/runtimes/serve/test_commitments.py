"""What a commitment holds, and what it does not forgive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from runtimes.serve import commitments
from runtimes.serve.commitments import BadCommitment, Binding, Committer, compare, read_commitment

BINDING = Binding.of([1, 2, 3], "digest", {"temperature": 0.0}, [4, 5])


def commit(prompt: Any, decoded: Any, *, pieces: int = 1) -> bytes:
    """A commitment to these rows, the prompt's taken in so many pieces."""
    committer = Committer(prompt.shape[1], "float32")
    for piece in np.array_split(prompt, pieces):
        committer.add_prompt(piece)
    for row in decoded:
        committer.add_decoded(row)
    return committer.finish(BINDING)


def rows(count: int, size: int = 64, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((count, size)).astype(np.float32)


@settings(max_examples=30, deadline=None)
@given(
    prompt=st.integers(1, 40),
    decoded=st.integers(0, 70),
    size=st.sampled_from([1, 3, 64, 500]),
    seed=st.integers(0, 2**32 - 1),
)
def test_who_computed_the_same_finds_nothing(prompt: int, decoded: int, size: int, seed: int):
    first, second = rows(prompt, size, seed), rows(decoded, size, seed + 1)
    read = read_commitment(commit(first, second))
    assert (read.prompt_tokens, read.decoded, read.hidden_size, read.binding) == (prompt, decoded, size, BINDING)
    found = compare(read, first, second)
    assert len(found) == 1 + -(-decoded // 32)
    assert all((one.missed, one.error_mean, one.error_median) == (0, 0.0, 0.0) for one in found)


@settings(max_examples=30, deadline=None)
@given(values=arrays.arrays(np.float32, (3, 90), elements=st.floats(width=32)))
def test_any_numbers_can_be_committed_to(values: Any):
    assert compare(read_commitment(commit(values, values[:0])), values, values[:0])[0].missed == 0


@pytest.mark.parametrize("pieces", [2, 5, 40])
def test_a_prompt_read_in_pieces_gives_the_same_commitment(pieces: int):
    assert commit(rows(40), rows(33), pieces=pieces) == commit(rows(40), rows(33))


def test_a_chunk_of_32_tokens_takes_258_bytes():
    assert len(commit(rows(4), rows(64))) - len(commit(rows(4), rows(32))) == 258


def test_small_noise_moves_last_places_and_other_values_are_missed():
    prompt, decoded = rows(40), rows(40)
    read = read_commitment(commit(prompt, decoded))
    noisy = compare(read, prompt * np.float32(1.004), decoded)
    assert noisy[0].missed == 0 and 0 < noisy[0].error_mean < 3
    assert (noisy[1].missed, noisy[1].error_mean) == (0, 0.0)
    other = compare(read, rows(40, seed=9), decoded)
    assert other[0].missed > 0.9 * other[0].values


def test_values_on_both_sides_of_a_power_of_two_are_near():
    prompt = np.full((1, 64), 1.0, dtype=np.float32)
    found = compare(read_commitment(commit(prompt, prompt[:0])), prompt * np.float32(0.997), prompt[:0])
    assert found[0].missed == 0


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_changed_commitment_is_refused_or_found(data: st.DataObject):
    prompt, decoded = rows(8), rows(40)
    whole = commit(prompt, decoded)
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[place] ^= data.draw(st.integers(1, 255))
    try:
        read = read_commitment(bytes(changed))
        found = compare(read, prompt, decoded)
    except BadCommitment:
        return
    is_far = any(one.missed or one.error_mean > 0.5 for one in found)
    starts = 17 + 64 + 258 * np.arange(3)  # a modulus, which may be any that keeps the indices apart
    is_modulus = place in (*starts, *(starts + 1))
    assert is_far or is_modulus or read.binding != BINDING or read.dtype != "float32"


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=400))
def test_bytes_that_are_none_are_refused(data: bytes):
    for each in (data, commit(rows(2), rows(1))[: len(data)], b"SKC1" + data):
        with pytest.raises(BadCommitment):
            read_commitment(each)


def test_rows_that_it_does_not_name_are_refused():
    read = read_commitment(commit(rows(8), rows(4)))
    for prompt, decoded in ((rows(7), rows(4)), (rows(8), rows(5)), (rows(8, 32), rows(4, 32))):
        with pytest.raises(BadCommitment):
            compare(read, prompt, decoded)


def test_what_differs_is_named():
    swapped = Binding.of([1, 2, 4], "digest", {"temperature": 1.0}, [4, 5])
    assert BINDING.differences(swapped) == ["prompt", "sampling"]
    assert BINDING.differences(Binding.of([1, 2, 3], "other", {"temperature": 0.0}, [4, 6])) == ["weights", "output"]


def test_indices_beyond_the_field_are_kept_apart():
    prompt = np.zeros((3, 65_497), dtype=np.float32)
    prompt[0, 5], prompt[1, 5], prompt[2, 7] = 3.0, 2.0, -4.0  # two of them fall together modulo the field's prime
    read = read_commitment(commit(prompt, prompt[:0]))
    assert read.chunks[0][0] < commitments.PRIME
    assert compare(read, prompt, prompt[:0])[0].missed == 0
