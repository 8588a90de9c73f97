"""What a device computes and what the server checks agree to the bit; each lie about it is found."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from marketplace.nodes.device_challenges.proofs import (
    HASH_BYTES,
    ChainPlan,
    Revealed,
    find_fault,
    find_wrong_blocks,
    make_words,
)
from runtimes.contract import challenge_key, challenge_modulus, state_root
from runtimes.probe.challenge.chain import Chain
from runtimes.probe.challenge.memory import Filling
from runtimes.probe.challenge.words import words

CPU = torch.device("cpu")
PLAN = ChainPlan(seed="node-1/device-1/check-1", size=64, grid=4, rounds=5)


def run(plan: ChainPlan) -> Chain:
    chain = Chain(plan.seed, size=plan.size, grid=plan.grid, rounds=plan.rounds, device=CPU)
    chain.run()
    return chain


def reveal(chain: Chain, round_number: int, block: int) -> Revealed:
    return Revealed(**{name: base64.b64decode(text) for name, text in chain.reveal(round_number, block).items()})


@pytest.fixture(scope="module")
def honest() -> Chain:
    return run(PLAN)


@pytest.mark.parametrize("passes", [1, 5])
def test_torch_and_numpy_make_the_same_words(passes: int) -> None:
    made = words(0xDEADBEEF, 2**31 - 3, 5000, device=CPU, passes=passes).numpy().view(np.uint32)
    assert np.array_equal(made, make_words(0xDEADBEEF, 2**31 - 3, 5000, passes=passes))


@pytest.mark.parametrize(("size", "modulus"), [(64, 251), (512, 181), (768, 139), (1024, 127), (4096, 61), (8192, 43)])
def test_modulus_keeps_every_product_exact_in_float32(size: int, modulus: int) -> None:
    assert challenge_modulus(size) == modulus
    assert (modulus - 1) ** 2 * size < 2**24


def test_every_block_of_an_honest_chain_is_believed(honest: Chain) -> None:
    found = [
        find_fault(PLAN, honest.roots, round_number, block, reveal(honest, round_number, block))
        for round_number in range(1, PLAN.rounds + 1)
        for block in range(PLAN.grid)
    ]
    assert found == [""] * PLAN.rounds * PLAN.grid


def test_answer_to_one_seed_is_no_answer_to_another(honest: Chain) -> None:
    other = replace(PLAN, seed="node-1/device-1/check-2")
    assert find_fault(other, honest.roots, 1, 0, reveal(honest, 1, 0)) == (
        "a chain that begins with another state than the seed's"
    )
    assert "wrong product" in find_fault(other, honest.roots, 3, 0, reveal(honest, 3, 0))


def commit_to(chain: Chain, state: int, tiles: torch.Tensor) -> None:
    """Put other tiles in the place of a state, with hashes and root that fit them."""
    chain._tiles[state] = tiles
    flat = tiles.reshape(-1, tiles.shape[-1]).numpy()
    chain._hashes[state] = b"".join(hashlib.sha256(tile).digest() for tile in flat)


def test_one_wrong_entry_of_one_round_is_found_whenever_its_rows_are_asked_for() -> None:
    lying = run(PLAN)
    tiles = lying._tiles[3].clone()
    tiles[2, 1, 7] = (int(tiles[2, 1, 7]) + 1) % challenge_modulus(PLAN.size)
    commit_to(lying, 3, tiles)
    assert find_fault(PLAN, lying.roots, 3, 2, reveal(lying, 3, 2)) == "a wrong product in round 3, rows 32 to 47"
    # As an input it is found too, by the column of tiles that it lies in.
    assert "wrong product in round 4" in find_fault(PLAN, lying.roots, 4, 1, reveal(lying, 4, 1))
    assert find_fault(PLAN, lying.roots, 3, 0, reveal(lying, 3, 0)) == ""


def test_freivalds_misses_a_wrong_entry_less_often_than_once_in_ten_thousand() -> None:
    """The bound is p^-16; here only that chance is not what finds it."""
    lying = run(ChainPlan("s", 16, 2, 1))
    tiles = lying._tiles[1].clone()
    tiles[0, 0, 0] = (int(tiles[0, 0, 0]) + 1) % 251
    commit_to(lying, 1, tiles)
    shown = reveal(lying, 1, 0)
    assert sum(not find_fault(ChainPlan("s", 16, 2, 1), lying.roots, 1, 0, shown) for _ in range(10_000)) == 0


def test_skipped_round_is_found() -> None:
    lying = run(PLAN)
    commit_to(lying, 4, lying._tiles[3])  # round 4 repeats what round 3 gave
    for block in range(PLAN.grid):
        assert "wrong product" in find_fault(PLAN, lying.roots, 4, block, reveal(lying, 4, block))


def test_tiles_and_hashes_that_were_not_committed_to_are_refused(honest: Chain) -> None:
    shown = reveal(honest, 2, 1)
    forged = shown.after[:-1] + bytes([shown.after[-1] ^ 1])
    assert "tiles of state 2 that were not" in find_fault(PLAN, honest.roots, 2, 1, replace(shown, after=forged))
    hashes = bytes(len(shown.after_hashes))
    assert "state 2 is not the one" in find_fault(PLAN, honest.roots, 2, 1, replace(shown, after_hashes=hashes))
    assert find_fault(PLAN, honest.roots, 2, 1, replace(shown, after=b"")) == "a block of the wrong size"
    assert "hashes of the wrong size" in find_fault(PLAN, honest.roots, 2, 1, replace(shown, after_hashes=b""))


def test_entries_beyond_the_modulus_are_refused() -> None:
    lying = run(PLAN)
    tiles = lying._tiles[2].clone()
    tiles[0, 0, 0] = 255
    commit_to(lying, 2, tiles)
    assert find_fault(PLAN, lying.roots, 2, 0, reveal(lying, 2, 0)) == "an entry that is no residue"


def test_roots_commit_to_every_tile(honest: Chain) -> None:
    assert len(honest.roots) == PLAN.rounds + 1
    assert len(honest._hashes[0]) == PLAN.grid**2 * HASH_BYTES
    assert honest.roots[0] == state_root(honest._hashes[0])


def test_filled_memory_is_read_back_and_memory_that_was_not_filled_is_not() -> None:
    filling = Filling("s", blocks=64, block_words=256, passes=3, device=CPU)
    sums = filling.read("fresh key")
    everything = list(range(64))
    assert find_wrong_blocks("s", "fresh key", sums, everything, block_words=256, passes=3) == []
    assert find_wrong_blocks("s", "another key", sums, everything, block_words=256, passes=3) == everything
    # Mallory kept a half and answers zeros for the rest: of 16 blocks picked at random, all good has a chance of 2^-16.
    kept = sums[: len(sums) // 2] + bytes(len(sums) // 2)
    assert find_wrong_blocks("s", "fresh key", kept, everything, block_words=256, passes=3) == everything[32:]
    assert challenge_key("s", "memory") != challenge_key("t", "memory")
