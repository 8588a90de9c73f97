"""The sections of a job file and what each field may be. `description` is what an error names as expected.

Fields are named as the code uses them (units last); the alias is the name in the file, in errors and on the wire.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from jobs.spec.section import (
    SETUP_CHARACTERS_MAX,
    CheckpointPath,
    FilePath,
    InputPath,
    Label,
    Mib,
    Micros,
    Name,
    Number,
    Region,
    RequirementsPath,
    Seconds,
    Section,
    SetupLine,
    Value,
    Variable,
    Version,
    Words,
    as_command,
    as_every,
    as_nodes,
    listed,
)
from jobs.spec.task_fields import TaskFields
from jobs.spec.units import NODES_MAX

CPUS_MAX = 4096
GPUS_MAX = 64  # per node: provider_agent.protocol.DEVICES_PER_NODE_MAX
DEFAULT_ISOLATION: Final = "container"
AUTO_SECONDS: Final = 300  # between checkpoints of a program that cannot reckon its own interval
NAME_CHARACTERS_MAX = 63
JOB_NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"  # which an id could be too
KIND_CHARACTERS_MAX = 16  # Job.kind
LIST_MAX = 100
ENV_MAX = 200
FILES_MAX = 1000
VERSIONS_MAX = 10**6  # the number of a volume's version
INPUTS_MAX = 16  # provider_agent.protocol.limits.INPUTS_MAX
OUTPUTS_MAX = 100  # provider_agent.protocol.limits.OUTPUT_PATTERNS_MAX
LENT_MAX = 64  # provider_agent.protocol.LENT_MAX
COMMAND_WORDS_MAX = 1000
SETUP_LINES_MAX = 50  # provider_agent.protocol.limits.SETUP_LINES_MAX
TOKENS_MAX = 10**15
STEPS_MAX = 10**9
ATTEMPTS_MAX = 100
FLOPS_MAX = 10**24

# Endings that are the customer's own fault, so they are tried again only where the file requests it.
RETRY_REASONS = ("exit_nonzero", "bad_config", "bad_input", "out_of_memory", "image_unavailable")

ASSET_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,15}$"

NodeCount = Annotated[int, Field(ge=1, le=NODES_MAX)]  # the fewest, and the most

IMAGE_CHARACTERS_MAX = 255 + len("@sha256:") + 64
# A folder below input/ that holds what an earlier job left, or a volume.
InputFolder = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$"), Field(description="letters, digits, . _ -")
]
# No part is `..`: provider_agent/protocol/image_names.py says where it would lead.
_IMAGE = r"^[a-zA-Z0-9][a-zA-Z0-9._:-]*(/[a-zA-Z0-9][a-zA-Z0-9._:-]*)*(@sha256:[0-9a-f]{64})?$"


class Resources(Section):
    """What the job needs of each node."""

    gpus: int = Field(1, ge=1, le=GPUS_MAX, description=f"a whole number from 1 to {GPUS_MAX}: devices per node")
    nodes_asked: Annotated[tuple[NodeCount, NodeCount], BeforeValidator(as_nodes)] = Field(
        (1, 1),
        alias="nodes",
        description=f"a whole number from 1 to {NODES_MAX}, or a range such as 2..6 of a training that grows",
    )
    kind: Literal["gpu", "cpu", "any"] = Field("gpu", description="gpu, cpu or any")
    models: Annotated[list[Name], BeforeValidator(listed), Field(max_length=LIST_MAX)] = Field(
        [], description="a device model or a list of them, such as [H100, RTX 4090]"
    )
    memory_mib: Mib = Field(0, alias="memory", description="memory per device with its unit, such as 24GB or 24GiB")
    cuda: Version | None = Field(None, description="the oldest CUDA that the driver must support, such as 12.4")
    compute_capability: Version | None = Field(
        None, description="the lowest compute capability of its GPUs, such as 8.0 (A100), 8.9 (L40S) or 9.0 (H100)"
    )
    cpus: int | None = Field(
        None, ge=1, le=CPUS_MAX, description=f"a whole number from 1 to {CPUS_MAX}: processor cores on each node"
    )
    ram_mib: Mib = Field(0, alias="ram", description="memory of each node with its unit, such as 64GB or 64GiB")
    disk_mib: Mib = Field(0, alias="disk", description="free disk of each node with its unit, such as 200GB")
    shm_mib: Mib = Field(0, alias="shm", description="the size of /dev/shm with its unit, such as 8GB or 8GiB")
    region: Annotated[list[Region], BeforeValidator(listed), Field(max_length=LIST_MAX)] = Field(
        [], description="a region or a list of them: small letters, digits and -"
    )
    # none: also as a plain process on nodes whose providers allow strangers' programs there.
    isolation: Literal["container", "gvisor", "none"] = Field(
        DEFAULT_ISOLATION, description="container, gvisor or none"
    )

    @property
    def nodes(self) -> int:
        """How many nodes it is placed on; a job that grows has more of them later."""
        return self.nodes_asked[0]

    @property
    def nodes_max(self) -> int:
        """How many nodes it has at most: `nodes`, where it does not grow."""
        return self.nodes_asked[1]

    @property
    def devices(self) -> int:
        """Devices in all, of the nodes that it is placed on."""
        return self.gpus * self.nodes


class Work(Section):
    """How much there is to do; what the price of the whole job is reckoned from."""

    tokens: int | None = Field(None, ge=1, le=TOKENS_MAX, description="a whole number of tokens from 1")
    steps: int | None = Field(None, ge=1, le=STEPS_MAX, description="a whole number of steps from 1")
    flops_per_step: Number | None = Field(
        None, gt=0, le=FLOPS_MAX, description="a number above 0: floating-point operations of one step, all devices"
    )


class Budget(Section):
    """What the job may cost and how long it may take, in all."""

    max_total_usd_micros: Micros = Field(alias="max_total", description="dollars above 0, such as 2.00")
    max_per_gpu_hour_usd_micros: Micros | None = Field(
        None, alias="max_per_gpu_hour", description="dollars above 0, such as 0.45"
    )
    deadline_seconds: Seconds | None = Field(
        None, alias="deadline", description="a duration with its unit, such as 90s, 5m, 2h or 1d"
    )


class Payment(Section):
    """What pays: dollars, or a token that the marketplace knows. Budgets stay in dollars; a quote locks the price."""

    asset: Annotated[str, StringConstraints(pattern=ASSET_PATTERN)] = Field(
        "USD", description="USD, or the code of a token that the marketplace takes, such as TUSD"
    )
    mode: Literal["credits", "escrow"] = Field(
        "credits", description="credits (your balance here) or escrow (your own wallet, by the contract)"
    )
    on_price_change: Literal["ask", "requote"] = Field(
        "ask",
        description="ask (wait for your word) or requote (hold more of the token), where it fell while a job waits",
    )


class Checkpoint(Section):
    """How often the job saves what it has, and how many it keeps."""

    every: Annotated[tuple[int, int], BeforeValidator(as_every)] = Field(
        (0, 300), description="auto, a number of steps or a duration, such as 50 steps or 5m"
    )
    keep: int = Field(2, ge=1, le=100, description="a whole number from 1 to 100")
    path: CheckpointPath | None = Field(
        None, description="a folder or file in the work folder that the command saves to, such as results"
    )

    @property
    def every_steps(self) -> int:
        """Steps between checkpoints; 0: not by steps."""
        return self.every[0]

    @property
    def every_seconds(self) -> int:
        """Seconds between checkpoints; 0: not by time. Of `auto` those of a program that cannot reckon its own."""
        return AUTO_SECONDS if self.is_auto else self.every[1]

    @property
    def is_auto(self) -> bool:
        """Whether the runtime reckons the interval from what a checkpoint costs, and how often the nodes fail."""
        return self.every == (0, 0)


class Retry(Section):
    """How often a job is tried. What the provider or the network broke is always tried again, within max_attempts."""

    max_attempts: int = Field(5, ge=1, le=ATTEMPTS_MAX, description=f"a whole number from 1 to {ATTEMPTS_MAX}")
    on: Annotated[list[Literal[RETRY_REASONS]], BeforeValidator(listed), Field(max_length=LIST_MAX)] = Field(  # type: ignore[valid-type]
        [], description="a list of " + ", ".join(RETRY_REASONS)
    )


class GivenFolder(Section):
    """What an earlier job of the same organisation left (`job`), or a volume of it (`volume`); exactly one of both."""

    job: Annotated[str, StringConstraints(pattern=JOB_NAME)] | None = Field(
        None, description="the id of a job of yours that completed, or its name: of the one that completed last"
    )
    volume: Annotated[str, StringConstraints(pattern=JOB_NAME)] | None = Field(
        None, description="the name of a volume of yours, as `souk volumes list` has it"
    )
    version: int | None = Field(
        None, ge=1, le=VERSIONS_MAX, description=f"a whole number from 1 to {VERSIONS_MAX}: a version of the volume"
    )


class EvaluationSection(TaskFields):
    """The evaluation that follows a training when it has completed: a job of its own, of kind eval."""

    compare_with_base: bool = Field(False, description="true or false")
    budget: Budget = Field(description="a mapping with max_total, max_per_gpu_hour, deadline: of the evaluation alone")


class JobFields(Section):
    """The keys of a job file that every kind of job has; the section of its own kind stands beside them."""

    kind: Annotated[str, StringConstraints(max_length=KIND_CHARACTERS_MAX)]  # one of jobs.spec.kinds.registry
    name: Annotated[str, StringConstraints(pattern=JOB_NAME)] = Field(
        description="1 to 63 small letters, digits and -, not beginning with -"
    )
    resources: Resources = Field(
        Resources(),
        description="a mapping with gpus, nodes, kind, models, memory, cuda, compute_capability, cpus, ram, disk, shm,"
        " region and isolation",
    )
    work: Work | None = Field(None, description="a mapping with tokens or steps")
    budget: Budget = Field(description="a mapping with max_total, max_per_gpu_hour, deadline")
    payment: Payment = Field(Payment(), description="a mapping with asset and mode")
    checkpoint: Checkpoint = Field(Checkpoint(), description="a mapping with every, keep and path")
    retry: Retry = Field(Retry(), description="a mapping with max_attempts and on")
    env: Annotated[dict[Variable, Value], Field(max_length=ENV_MAX)] = Field(
        {}, description="a mapping of names to texts; numbers and true or false in quotes"
    )
    secrets: Annotated[list[Variable], BeforeValidator(listed), Field(max_length=LIST_MAX)] = Field(
        [], description="a list of names of environment variables"
    )
    files: Annotated[list[InputPath], BeforeValidator(listed), Field(max_length=FILES_MAX)] = Field(
        [], description="a list of paths below the job file's folder, or . for all of it"
    )
    inputs: Annotated[dict[InputFolder, GivenFolder], Field(max_length=INPUTS_MAX)] = Field(
        {},
        description="a mapping of folder names to results of earlier jobs and to volumes, such as"
        " tuned: {job: my-training} or corpus: {volume: my-corpus}",
    )
    outputs: Annotated[list[FilePath], BeforeValidator(listed), Field(min_length=1, max_length=OUTPUTS_MAX)] | None = (
        Field(None, description="a list of files, folders or patterns in the work folder, such as results/*.csv")
    )
    image: Annotated[str, StringConstraints(pattern=_IMAGE, max_length=IMAGE_CHARACTERS_MAX)] | None = Field(
        None, description="a container image, such as registry/name@sha256:..."
    )
    setup: (
        Annotated[list[SetupLine], BeforeValidator(listed), Field(min_length=1, max_length=SETUP_LINES_MAX)] | None
    ) = Field(
        None,
        description=f"a command line or a list of up to {SETUP_LINES_MAX}, each a text of up to"
        f" {SETUP_CHARACTERS_MAX} characters",
    )
    requirements: RequirementsPath | None = Field(
        None, description="a path under files that ends with .txt, such as requirements.txt, or a uv.lock"
    )
    network: Literal["none", "public"] = Field("none", description="none or public")
    lent: Annotated[list[Label], BeforeValidator(listed), Field(max_length=LENT_MAX)] = Field(
        [], description="a label or a list of labels of folders that a provider lends: small letters, digits, . _ -"
    )
    command: (
        Annotated[list[Words], BeforeValidator(as_command), Field(min_length=1, max_length=COMMAND_WORDS_MAX)] | None
    ) = Field(None, description="a command as a text or a list of words")
    evaluation: EvaluationSection | None = Field(
        None, description="a mapping with tasks and budget: the evaluation that follows a training"
    )


class Spec(JobFields):
    """A job file, checked. Made by `parse` or `from_wire` alone, which hold the rules between its fields."""

    section: Section | None = None  # of its kind: the mapping under the kind's name
