"""A chain of exact matrix products: each round's input is the transpose of the former output, squared.

    S[0], B   residues mod p from the seed, size x size
    S[r] = (S[r-1]^T squared elementwise + a[r] mod p) B   mod p

Sums stay below 2^24, so that float32 is exact on any hardware, in any order of summation. The transpose makes every
entry of a round depend on every entry of the one before: no part of the chain can be computed apart from the rest.
A state is committed to by the hashes of its grid x grid tiles, taken while the next product is computed elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
from concurrent.futures import ThreadPoolExecutor

import torch

from runtimes.contract import challenge_key, challenge_modulus, state_root
from runtimes.probe.challenge.words import words

HASHING_THREADS = 4  # for GPUs; on a processor share there is one thread for everything


class Chain:
    """The states of one chain, kept on the processor's side until they are revealed."""

    def __init__(self, seed: str, *, size: int, grid: int, rounds: int, device: torch.device) -> None:
        self.modulus = challenge_modulus(size)
        self.size, self.grid, self.rounds, self.device = size, grid, rounds, device
        self.keys = [challenge_key(seed, "round", number) % self.modulus for number in range(rounds + 1)]
        self._start = self._residues(challenge_key(seed, "start"))
        self._factor = self._residues(challenge_key(seed, "factor")).float()
        self._tiles: list[torch.Tensor] = []  # of each state: uint8, (grid, grid, bytes of a tile), on the processor
        self._hashes: list[bytes] = []
        self._pool = ThreadPoolExecutor(HASHING_THREADS) if device.type == "cuda" else None

    @property
    def roots(self) -> list[str]:
        """The commitment to every state, S[0] first."""
        return [state_root(hashes) for hashes in self._hashes]

    def run(self) -> None:
        """Compute and hash every state."""
        torch.backends.cuda.matmul.allow_tf32 = False
        state = self._start
        self._keep(state)
        for key in self.keys[1:]:
            inputs = state.T.float()
            inputs = torch.remainder(inputs * inputs + key, self.modulus)
            state = torch.remainder(inputs @ self._factor, self.modulus).to(torch.uint8)
            self._keep(state)

    def reveal(self, round_number: int, block: int) -> dict[str, str]:
        """Column `block` of tiles of the state before the round, row `block` of the one after, and both's hashes."""
        before, after = self._tiles[round_number - 1][:, block], self._tiles[round_number][block]
        return {
            "before": _text(before.contiguous().numpy().tobytes()),
            "after": _text(after.contiguous().numpy().tobytes()),
            "before_hashes": _text(self._hashes[round_number - 1]),
            "after_hashes": _text(self._hashes[round_number]),
        }

    def _residues(self, key: int) -> torch.Tensor:
        stream = words(key, 0, self.size * self.size, device=self.device)
        unsigned = stream.bitwise_and(0x7FFFFFFF)  # the lower 31 bits
        return torch.remainder(unsigned, self.modulus).to(torch.uint8).view(self.size, self.size)

    def _keep(self, state: torch.Tensor) -> None:
        side = self.size // self.grid
        tiles = state.view(self.grid, side, self.grid, side).permute(0, 2, 1, 3).reshape(self.grid, self.grid, -1).cpu()
        rows = [tiles[row].numpy() for row in range(self.grid)]
        hashed = self._pool.map(_hash_row, rows) if self._pool else map(_hash_row, rows)
        self._tiles.append(tiles)
        self._hashes.append(b"".join(hashed))


def _hash_row(row: object) -> bytes:
    tiles: list[memoryview] = list(row)  # type: ignore[call-overload]
    return b"".join(hashlib.sha256(tile).digest() for tile in tiles)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
