"""Checks what a device answered to a challenge, in O(n^2), with numpy alone and exactly.

The words are those of runtimes/probe/challenge, to the bit. A revealed block of a round is checked by Freivalds' method
(R. Freivalds, 1977): A B = C is believed when A (B X) = C X for random X; over the integers mod p a wrong C passes with
a probability of at most p^-columns, and `FREIVALDS_COLUMNS` keeps that below 2^-64 for every modulus.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from runtimes.contract import MEMORY_SEGMENT_WORDS, challenge_key, challenge_modulus, state_root

GOLDEN: Final = 0x9E3779B9
MULTIPLIERS: Final = (0x85EBCA6B, 0xC2B2AE35)
SHIFTS: Final = (16, 13, 16)
FREIVALDS_COLUMNS: Final = 16  # p >= 43 for every size up to 8192: 43^-16 < 2^-86
HASH_BYTES: Final = 32
MATRICES_KEPT: Final = 8  # of up to 64 MiB each

Words = npt.NDArray[np.uint32]
Residues = npt.NDArray[np.float32]  # exact: the modulus is chosen so that sums stay below 2^24


@dataclass(frozen=True)
class ChainPlan:
    """One device's chain of products."""

    seed: str
    size: int
    grid: int  # a state is grid x grid tiles
    rounds: int

    @property
    def tile_bytes(self) -> int:
        """Bytes of one tile; an entry is a byte."""
        return (self.size // self.grid) ** 2


@dataclass(frozen=True)
class Revealed:
    """A column of tiles of the state before a round, a row of the one after, and the hashes of all tiles of both."""

    before: bytes
    after: bytes
    before_hashes: bytes
    after_hashes: bytes


def make_words(key: int, start: int, count: int, *, passes: int = 1) -> Words:
    """Words number start .. start + count of the stream of `key`."""
    mixed: Words = np.arange(count, dtype=np.uint32)
    mixed += np.uint32((key + start) & 0xFFFFFFFF)
    for number in range(1, passes + 1):
        mixed += np.uint32(GOLDEN * number & 0xFFFFFFFF)
        mixed ^= mixed >> np.uint32(SHIFTS[0])
        mixed *= np.uint32(MULTIPLIERS[0])
        mixed ^= mixed >> np.uint32(SHIFTS[1])
        mixed *= np.uint32(MULTIPLIERS[1])
        mixed ^= mixed >> np.uint32(SHIFTS[2])
    return mixed


def find_fault(plan: ChainPlan, roots: list[str], round_number: int, block: int, revealed: Revealed) -> str:
    """What is wrong with a revealed block, in a few words; empty when nothing is.

    O(size^2 x FREIVALDS_COLUMNS) whatever the number of rounds.
    """
    tiles, width = plan.grid * plan.tile_bytes, plan.grid * plan.grid * HASH_BYTES
    if {len(revealed.before), len(revealed.after)} != {tiles}:
        return "a block of the wrong size"
    if {len(revealed.before_hashes), len(revealed.after_hashes)} != {width}:
        return "a list of hashes of the wrong size"
    for state, hashes in ((round_number - 1, revealed.before_hashes), (round_number, revealed.after_hashes)):
        if state_root(hashes) != roots[state]:
            return f"state {state} is not the one that was committed to"
    before_at = [row * plan.grid + block for row in range(plan.grid)]
    after_at = [block * plan.grid + column for column in range(plan.grid)]
    if not _are_tiles(revealed.before, revealed.before_hashes, before_at, plan.tile_bytes):
        return f"tiles of state {round_number - 1} that were not committed to"
    if not _are_tiles(revealed.after, revealed.after_hashes, after_at, plan.tile_bytes):
        return f"tiles of state {round_number} that were not committed to"
    return _find_wrong_product(plan, round_number, block, revealed)


def find_wrong_blocks(
    seed: str, key: str, sums: bytes, picked: list[int], *, block_words: int, passes: int
) -> list[int]:
    """Which of the picked blocks of memory were read back wrong. Makes each of them anew."""
    weights = make_words(challenge_key(key, "recall"), 0, block_words)
    answered = np.frombuffer(sums, dtype="<u4")
    wrong = []
    for block in picked:
        segment, offset = divmod(block * block_words, MEMORY_SEGMENT_WORDS)
        kept = make_words(challenge_key(seed, "memory", segment), offset, block_words, passes=passes)
        if np.uint32((kept * weights).sum(dtype=np.uint32)) != answered[block]:
            wrong.append(block)
    return wrong


def _find_wrong_product(plan: ChainPlan, round_number: int, block: int, revealed: Revealed) -> str:
    modulus, side = challenge_modulus(plan.size), plan.size // plan.grid
    before, after = _matrix(revealed.before, plan.grid, side).T, _matrix_of_row(revealed.after, plan.grid, side)
    if max(before.max(), after.max()) >= modulus:
        return "an entry that is no residue"
    if round_number == 1:
        start = _residues(challenge_key(plan.seed, "start"), plan.size, modulus)[:, block * side : (block + 1) * side].T
        if not np.array_equal(start, before):
            return "a chain that begins with another state than the seed's"
    key = challenge_key(plan.seed, "round", round_number) % modulus
    left: Residues = (before.astype(np.float32) ** 2 + key) % modulus  # the inputs of these rows: (side, size)
    factor = _residues(challenge_key(plan.seed, "factor"), plan.size, modulus).astype(np.float32)
    columns: Any = np.random.default_rng().integers(0, modulus, (plan.size, FREIVALDS_COLUMNS)).astype(np.float32)
    # Every sum is below size x p^2, so float32 is exact (contract.challenge_modulus).
    expected = (left @ ((factor @ columns) % modulus)) % modulus
    given = (after.astype(np.float32) @ columns) % modulus
    if not np.array_equal(expected, given):
        return f"a wrong product in round {round_number}, rows {block * side} to {(block + 1) * side - 1}"
    return ""


def _are_tiles(tiles: bytes, hashes: bytes, places: list[int], size: int) -> bool:
    return all(
        hashlib.sha256(tiles[number * size : (number + 1) * size]).digest()
        == hashes[place * HASH_BYTES : (place + 1) * HASH_BYTES]
        for number, place in enumerate(places)
    )


def _matrix(tiles: bytes, grid: int, side: int) -> npt.NDArray[np.uint8]:
    """A column of tiles as the columns that it covers: (grid x side, side)."""
    return np.frombuffer(tiles, dtype=np.uint8).reshape(grid * side, side)


def _matrix_of_row(tiles: bytes, grid: int, side: int) -> npt.NDArray[np.uint8]:
    """A row of tiles as the rows that it covers: (side, grid x side)."""
    stacked = np.frombuffer(tiles, dtype=np.uint8).reshape(grid, side, side)
    return stacked.transpose(1, 0, 2).reshape(side, grid * side)


@lru_cache(maxsize=MATRICES_KEPT)
def _residues(key: int, size: int, modulus: int) -> npt.NDArray[np.uint8]:
    """Kept for the next opening of the same device, which is a request of its own."""
    stream = make_words(key, 0, size * size) & np.uint32(0x7FFFFFFF)
    made = (stream % np.uint32(modulus)).astype(np.uint8).reshape(size, size)
    made.setflags(write=False)
    return made
