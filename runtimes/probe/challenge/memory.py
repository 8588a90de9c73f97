"""A device's memory filled with words that are costly to make and cheap to read.

Block b is the words b x block_words ... of the seed's stream, each mixed `passes` times; every segment of
MEMORY_SEGMENT_WORDS has its own key, and block_words divides it. Reading answers with one sum a block, sum of
x[i] w[b, i] mod 2^32, where x comes from a key that is sent only once the memory is full: a node that did not keep the
words has to make them all again. The server makes a few blocks of its choice.
"""

from __future__ import annotations

import torch

from runtimes.contract import MEMORY_SEGMENT_WORDS, challenge_key
from runtimes.probe.challenge.words import words

CACHED_WORDS = 1 << 16  # on a processor: mixed this many at a time, so that they stay in its cache
CUDA_WORDS = MEMORY_SEGMENT_WORDS


class Filling:
    """Words in the device's memory."""

    def __init__(self, seed: str, *, blocks: int, block_words: int, passes: int, device: torch.device) -> None:
        self.device, self.block_words = device, block_words
        count = blocks * block_words
        filled = torch.empty(count, dtype=torch.int32, device=device)
        step = CACHED_WORDS if device.type == "cpu" else CUDA_WORDS
        for start in range(0, count, step):
            width = min(step, count - start)
            segment, offset = divmod(start, MEMORY_SEGMENT_WORDS)
            key = challenge_key(seed, "memory", segment)
            filled[start : start + width] = words(key, offset, width, device=device, passes=passes)
        self._blocks = filled.view(blocks, block_words)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def read(self, key: str) -> bytes:
        """The sum of every block under the key, little-endian words in order."""
        weights = words(challenge_key(key, "recall"), 0, self.block_words, device=self.device)
        rows = max((CACHED_WORDS if self.device.type == "cpu" else CUDA_WORDS) // self.block_words, 1)
        sums = [
            (self._blocks[start : start + rows] * weights).sum(dim=1, dtype=torch.int32)
            for start in range(0, self._blocks.shape[0], rows)
        ]
        return bytes(torch.cat(sums).cpu().numpy().astype("<i4").tobytes())
