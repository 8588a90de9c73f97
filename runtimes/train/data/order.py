"""The order of the samples: computed, never stored, and the same on any number of ranks.

The training walks one global cursor: position p means sample `permute(p mod N)` of epoch `p div N`. A step takes
the next `global_batch_size` positions, and the ranks share them out in contiguous parts. So a checkpoint needs only the
step, and a resume on another number of ranks sees the same samples in the same order.

The permutation is a Feistel network with cycle walking (Black and Rogaway 2002, "Ciphers with arbitrary finite
domains"): a bijection of any range in constant memory.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

FEISTEL_ROUNDS = 6
UInt64s = NDArray[np.uint64]


def batch_samples(step: int, *, batch_size: int, samples: int, seed: int) -> UInt64s:
    """Sample ids of one step in global order, shape (batch_size,); pure in its arguments."""
    positions = np.arange(step * batch_size, (step + 1) * batch_size, dtype=np.uint64)
    epochs = positions // np.uint64(samples)
    ids = np.empty_like(positions)
    for epoch in np.unique(epochs):
        chosen = epochs == epoch
        ids[chosen] = permute(positions[chosen] % np.uint64(samples), size=samples, seed=seed, epoch=int(epoch))
    return ids


def rank_part(batch_size: int, rank: int, world_size: int) -> slice:
    """The contiguous part of a batch that a rank computes: disjoint, complete, and at most 1 apart in size.

    So are the passes of a rank over its own part.
    """
    return slice(rank * batch_size // world_size, (rank + 1) * batch_size // world_size)


def largest_part(batch_size: int, world_size: int) -> int:
    """The size of the largest rank's part: every rank makes as many passes as this one needs."""
    return -(-batch_size // world_size)


def permute(index: UInt64s, *, size: int, seed: int, epoch: int) -> UInt64s:
    """A bijection of range(size), chosen by seed and epoch; works on any array of indices below `size`."""
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    keys = _round_keys(seed, epoch)
    value = index.astype(np.uint64)
    outside = np.ones(value.shape, dtype=bool)
    for _ in range(1 << (2 * half_bits)):  # a cycle of the network cannot be longer than its domain
        value[outside] = _feistel(value[outside], half_bits, keys)
        outside = value >= np.uint64(size)
        if not outside.any():
            break
    return value


def _round_keys(seed: int, epoch: int) -> UInt64s:
    text = hashlib.blake2b(f"souk order {seed} {epoch}".encode(), digest_size=8 * FEISTEL_ROUNDS).digest()
    return np.frombuffer(text, dtype="<u8").astype(np.uint64)


def _feistel(value: UInt64s, half_bits: int, keys: UInt64s) -> UInt64s:
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = value >> shift, value & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << shift) | right


def _mix(value: UInt64s) -> UInt64s:
    """The finalizer of splitmix64: every input bit reaches every output bit."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
