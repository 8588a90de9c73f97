"""Tokens that anybody who knows the seed draws again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.serve.engines.souk.sampling import Sampling, draw, gap, log_probabilities

SAMPLINGS = [Sampling(temperature=0), Sampling(1.0, 1.0, 3), Sampling(0.7, 0.9, 3), Sampling(1.3, 0.3, 3)]


def logits(seed: int, size: int = 50) -> Any:
    return (3 * np.random.default_rng(seed).standard_normal(size)).astype(np.float32)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10_000), position=st.integers(0, 5000), which=st.integers(0, 3))
def test_what_was_drawn_is_not_missed(seed: int, position: int, which: int):
    row = logits(seed)
    assert gap(row, SAMPLINGS[which], 0, position, draw(row, SAMPLINGS[which], 0, position)) == 0.0


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_little_noise_misses_by_little(sampling: Sampling):
    noise = np.random.default_rng(1)
    far = 0.0
    for seed in range(200):
        row = logits(seed)
        noisy = row + (1e-5 * noise.standard_normal(row.shape)).astype(np.float32)
        far = max(far, gap(noisy, sampling, 0, seed, draw(row, sampling, 0, seed)))
    assert far < 1e-3


@pytest.mark.parametrize("other", [Sampling(1.4, 1.0, 3), Sampling(1.0, 1.0, 4), Sampling(0.0)])
def test_drawing_otherwise_is_seen(other: Sampling):
    asked = SAMPLINGS[1]
    gaps = [gap(logits(seed), asked, 0, seed, draw(logits(seed), other, 0, seed)) for seed in range(64)]
    assert max(gaps) > 0.02


def test_tokens_are_drawn_as_often_as_they_are_likely():
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
    drawn = np.bincount([draw(row, Sampling(1.0, 1.0, 1), 0, place) for place in range(4000)], minlength=4) / 4000
    assert np.abs(drawn - [0.5, 0.3, 0.15, 0.05]).max() < 0.03
    kept = np.bincount([draw(row, Sampling(1.0, 0.6, 1), 0, place) for place in range(4000)], minlength=4) / 4000
    assert kept[2] == kept[3] == 0 and abs(kept[0] - 0.625) < 0.03


def test_choices_and_places_are_drawn_apart():
    row = np.zeros(1000, dtype=np.float32)
    assert len({draw(row, SAMPLINGS[1], choice, place) for choice in range(8) for place in range(8)}) > 50


def test_log_probabilities_add_up():
    assert np.exp(log_probabilities(logits(1))).sum() == pytest.approx(1.0)


def test_a_token_that_is_none_is_missed_wholly():
    assert gap(logits(1), SAMPLINGS[1], 0, 0, 50) == 1.0
