"""Pseudo-random words on a device, the same to the bit as the server's numpy makes them (its proofs.py).

int32 stands for uint32: sums and products wrap, and a shift to the right is masked to be one of unsigned numbers.
"""

from __future__ import annotations

import torch

GOLDEN = 0x9E3779B9
MULTIPLIERS = (0x85EBCA6B, 0xC2B2AE35)  # of MurmurHash3's finalizer
SHIFTS = (16, 13, 16)


def signed(word: int) -> int:
    """A 32-bit word as the int32 with the same bits."""
    word &= 0xFFFFFFFF
    return word - (1 << 32) if word >> 31 else word


def words(key: int, start: int, count: int, *, device: torch.device, passes: int = 1) -> torch.Tensor:
    """Words number start .. start + count of the stream of `key`, int32 of shape (count,)."""
    mixed = torch.arange(count, dtype=torch.int32, device=device)
    mixed.add_(signed(key + start))
    for number in range(1, passes + 1):
        mixed.add_(signed(GOLDEN * number))
        fold(mixed, SHIFTS[0])
        mixed.mul_(signed(MULTIPLIERS[0]))
        fold(mixed, SHIFTS[1])
        mixed.mul_(signed(MULTIPLIERS[1]))
        fold(mixed, SHIFTS[2])
    return mixed


def fold(mixed: torch.Tensor, shift: int) -> None:
    """x ^= x >> shift, unsigned."""
    mixed.bitwise_xor_((mixed >> shift).bitwise_and_((1 << (32 - shift)) - 1))
