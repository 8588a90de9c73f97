"""What of a GPU's reported versions counts."""

from __future__ import annotations

import pytest

from marketplace.nodes.inventory.gpu_versions import CAPABILITIES, compute_capability_of, format_version, version_of


@pytest.mark.parametrize(
    ("model", "reported", "counts"),
    [
        ("NVIDIA H100 80GB HBM3", "9.0", "9.0"),
        ("NVIDIA A100-SXM4-80GB", "9.0", "8.0"),  # Mallory would like the jobs of an H100
        ("NVIDIA A10", "8.9", "8.6"),
        ("NVIDIA GeForce RTX 4090", "8.9", "8.9"),
        ("NVIDIA RTX 6000 Ada Generation", "9.0", "8.9"),
        ("NVIDIA H200", "8.0", "8.0"),  # who reports less is believed
        ("NVIDIA H200", None, ""),
        ("A card of tomorrow", "13.0", "13.0"),
    ],
)
def test_a_known_model_never_counts_for_more_than_it_has(model: str, reported: object, counts: str) -> None:
    assert format_version(compute_capability_of(model, reported)) == counts


@pytest.mark.parametrize("reported", [None, 12.4, True, "", "12", "12.4.1", "-1.0", "999.0", "12.x", "१२.४ "])
def test_what_is_no_version_is_unknown(reported: object) -> None:
    assert version_of(reported) == (0, 0)


def test_no_row_of_the_table_hides_another() -> None:
    names = [set(name.split()) for name, _ in CAPABILITIES]
    assert not [(a, b) for at, a in enumerate(names) for b in names[at + 1 :] if a <= b]
