"""The keys of an evaluation that stand in a job file of kind eval, and in a training's that one follows."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from jobs.spec.section import FilePath, Section, listed

TRAINED_FOLDER: Final = "trained"  # below input/ of an evaluation that follows a training: what that left
TASKS_MAX = 64
LIMIT_MAX = 1_000_000
BATCH_MAX = 1024
FEWSHOT_MAX = 100
TaskPath = Annotated[FilePath, Field(max_length=300)]


class TaskFields(Section):
    """What is asked, and how; the bounds and defaults of `runtimes/evaluate/config.py`, which a test compares."""

    tasks: Annotated[list[TaskPath], BeforeValidator(listed), Field(min_length=1, max_length=TASKS_MAX)] = Field(
        description=f"a task file or a folder of them under files, or a list of up to {TASKS_MAX}"
    )
    limit: int | None = Field(
        None, ge=1, le=LIMIT_MAX, description=f"a whole number from 1 to {LIMIT_MAX}, or null for all samples"
    )
    batch_size: int = Field(8, ge=1, le=BATCH_MAX, description=f"a whole number from 1 to {BATCH_MAX}")
    num_fewshot: int | None = Field(
        None, ge=0, le=FEWSHOT_MAX, description=f"a whole number from 0 to {FEWSHOT_MAX}, or null for the task file's"
    )
    seed: int = Field(0, ge=0, le=2**63 - 1, description="a whole number from 0")
    dtype: Literal["float32", "bfloat16", "float64"] = Field("float32", description="float32, bfloat16 or float64")
    map: bool = Field(True, description="true or false")
