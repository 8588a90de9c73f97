"""The result is written from tensors that lie in files: what they hold, and what is left of the files."""

from __future__ import annotations

from pathlib import Path

import torch

from runtimes.train.export import CACHE_FOLDER, keep_on_disk


def test_tensors_in_files_are_the_same_and_the_files_have_no_names(tmp_path: Path) -> None:
    weights = [
        (["a"], torch.randn(3, 5)),
        (["steps"], torch.arange(4)),
        (["b", "tied"], torch.randn(7)),
        (["empty"], torch.empty(0, 2)),
        (["one"], torch.tensor(2.5)),
    ]
    kept = keep_on_disk(iter(weights), tmp_path, dtype=torch.bfloat16)
    assert list(kept) == ["a", "steps", "b", "tied", "empty", "one"]
    for names, weight in weights:
        for name in names:
            expected = weight.bfloat16() if weight.is_floating_point() else weight
            assert torch.equal(kept[name], expected) and kept[name].dtype is expected.dtype
    assert kept["b"] is kept["tied"]
    assert list((tmp_path / CACHE_FOLDER).iterdir()) == []
    mapped = Path("/proc/self/maps").read_text()
    assert mapped.count(f"{tmp_path}/{CACHE_FOLDER}/weight-") == 4, "they are no memory of the process"


def test_each_tensor_is_written_before_the_next_is_made(tmp_path: Path) -> None:
    alive: list[int] = []

    def made() -> object:
        for number in range(5):
            weight = torch.full((1000,), float(number))
            alive.append(weight.data_ptr())
            yield [str(number)], weight
            del weight

    kept = keep_on_disk(made(), tmp_path)
    assert [float(kept[str(number)][0]) for number in range(5)] == [0, 1, 2, 3, 4]
    assert len(set(alive)) < 5, "its memory is used again"
