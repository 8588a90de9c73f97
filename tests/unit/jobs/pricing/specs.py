"""A spec to be priced."""

from __future__ import annotations

from typing import Any

from jobs.spec import Spec, from_wire


def spec_of(**changes: Any) -> Spec:
    return from_wire(
        {
            "kind": "train",
            "name": "tiny",
            "resources": {"gpus": 1, "kind": "any"},
            "work": {"steps": 1000},
            "budget": {"max_total": "2.00"},
            "train": {"model": "tiny-llama"},
            **changes,
        }
    )
