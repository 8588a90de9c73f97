"""The `train` section: the built-in runtime's keys with the bounds and defaults of `runtimes/train/config.py`.

Upper floors may not import a runtime, so the table stands here too; a test holds both to the same keys and defaults.
Defaults are frozen into the canonical form: what was quoted is what runs, also after a default has changed.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from jobs.spec.section import Section, listed

STEPS_MAX = 10**9
BATCH_MAX = 1 << 16
SEQUENCE_MAX = 1 << 20
FILES_MAX = 1000


def _number(value: Any) -> Any:
    """Numbers only: no text, no truth value; whole numbers and decimals become floats."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not math.isfinite(value):
        raise ValueError("is not a number")
    return float(value)


Number = Annotated[float, BeforeValidator(_number)]
Text = Annotated[str, Field(min_length=1, max_length=300)]


class Train(Section):
    """One training as the built-in runtime does it; `work` says how much."""

    model: Text = Field("tiny-llama", description="a shipped model (tiny-llama), a folder under files, or a hub id")
    data: Annotated[list[Text], BeforeValidator(listed), Field(min_length=1, max_length=FILES_MAX)] = Field(
        ["python-docs"], description="python-docs, a path under files, or a list of paths"
    )
    eval_fraction: Number = Field(0.05, gt=0, le=0.5, description="a number above 0 and at most 0.5")
    vocabulary_size: int | None = Field(
        None, ge=300, le=1_000_000, description="a whole number from 300 to 1000000, or null for the model's"
    )
    sequence_length: int = Field(128, ge=8, le=SEQUENCE_MAX, description=f"a whole number from 8 to {SEQUENCE_MAX}")
    global_batch_size: int = Field(16, ge=1, le=BATCH_MAX, description=f"a whole number from 1 to {BATCH_MAX}")
    micro_batch_size: int | None = Field(
        None, ge=1, le=BATCH_MAX, description=f"a whole number from 1 to {BATCH_MAX}, or null"
    )
    learning_rate: Number = Field(3e-3, gt=0, le=10, description="a number above 0 and at most 10")
    warmup_steps: int = Field(20, ge=0, le=STEPS_MAX, description=f"a whole number from 0 to {STEPS_MAX}")
    weight_decay: Number = Field(0.1, ge=0, le=10, description="a number from 0 to 10")
    betas: Annotated[list[Annotated[Number, Field(ge=0, le=0.99999)]], Field(min_length=2, max_length=2)] = Field(
        [0.9, 0.95], description="two numbers from 0 to 0.99999"
    )
    gradient_clip: Number = Field(1.0, gt=0, le=1e6, description="a number above 0 and at most 1000000")
    dtype: Literal["auto", "float32", "bfloat16"] = Field("auto", description="auto, float32 or bfloat16")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="a whole number from 0")
    evaluate_every: int = Field(100, ge=0, le=STEPS_MAX, description=f"a whole number from 0 to {STEPS_MAX}")
    sample_every: int = Field(0, ge=-1, le=STEPS_MAX, description=f"a whole number from -1 to {STEPS_MAX}")
    sample_prompt: str = Field("The ", max_length=2000, description="a text of at most 2000 characters")
    log_every: int = Field(1, ge=1, le=STEPS_MAX, description=f"a whole number from 1 to {STEPS_MAX}")
    log_samples: bool = Field(False, description="true or false")
