"""The order of the samples is a bijection, and does not depend on the number of ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.train.data.order import batch_samples, largest_part, permute, rank_part


@given(size=st.integers(1, 3000), seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_permutation_is_a_bijection(size: int, seed: int, epoch: int) -> None:
    shuffled = permute(np.arange(size, dtype=np.uint64), size=size, seed=seed, epoch=epoch)
    assert sorted(shuffled.tolist()) == list(range(size))


def test_permutation_shuffles_and_epochs_differ() -> None:
    index = np.arange(1000, dtype=np.uint64)
    first = permute(index, size=1000, seed=1, epoch=0)
    assert (first == index).mean() < 0.02
    assert (first == permute(index, size=1000, seed=1, epoch=1)).mean() < 0.02
    assert (first == permute(index, size=1000, seed=2, epoch=0)).mean() < 0.02


def test_permutation_of_a_huge_range_stays_inside_it() -> None:
    size = 10**15 + 7
    some = np.arange(size - 1000, size, dtype=np.uint64)
    shuffled = permute(some, size=size, seed=3, epoch=0)
    assert len(set(shuffled.tolist())) == len(some)
    assert int(shuffled.max()) < size


@given(batch=st.integers(1, 200), ranks=st.integers(1, 70))
def test_ranks_share_a_batch_disjointly_and_completely(batch: int, ranks: int) -> None:
    ids = list(range(batch))
    parts = [ids[rank_part(batch, rank, ranks)] for rank in range(ranks)]
    assert [sample for part in parts for sample in part] == ids
    assert max(len(part) for part in parts) == largest_part(batch, ranks)


@pytest.mark.parametrize("batch", [1, 7, 16])
def test_every_epoch_sees_every_sample_once(batch: int) -> None:
    samples, epochs = 37, 3
    steps = -(-samples * epochs // batch)
    seen = np.concatenate([batch_samples(s, batch_size=batch, samples=samples, seed=9) for s in range(steps)])
    for epoch in range(epochs):
        assert sorted(seen[epoch * samples : (epoch + 1) * samples].tolist()) == list(range(samples))


def test_batch_of_a_step_needs_nothing_but_the_step() -> None:
    straight = [batch_samples(step, batch_size=8, samples=100, seed=4).tolist() for step in range(40)]
    assert batch_samples(39, batch_size=8, samples=100, seed=4).tolist() == straight[39]
