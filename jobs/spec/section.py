"""What the sections of a job file are built of: a strict base, and the kinds of values that more than one has."""

from __future__ import annotations

import math
import re
import shlex
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from jobs.spec.units import parse_duration, parse_every, parse_memory, parse_money, parse_nodes, parse_version
from runtimes.contract import checkpoint_path_mistake, requirements_path_mistake

VALUE_CHARACTERS_MAX = 32_768
SETUP_CHARACTERS_MAX = 4096  # provider_agent.protocol.limits.SETUP_CHARACTERS_MAX

# Marks of the alternatives of a value that is a text or a mapping: they are no part of a path in the file.
TEXT_TAG: Final = "[text]"
MAPPING_TAG: Final = "[mapping]"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_RESERVED = "SOUK_"
_DRIVE = re.compile(r"[A-Za-z]:")


def listed(value: Any) -> Any:
    """One name may stand without its brackets."""
    return [value] if isinstance(value, str) else value


def listed_models(value: Any) -> Any:
    """One model, by its name or as a mapping, may stand without its brackets."""
    return [value] if isinstance(value, str | dict) else value


def text_or_mapping(value: Any) -> str:
    """Which of the two alternatives a value is to be read as."""
    return MAPPING_TAG if isinstance(value, dict | BaseModel) else TEXT_TAG


def as_command(value: Any) -> Any:
    """A text is given to bash, so that pipes and && work; a list is run as it is."""
    if isinstance(value, str):
        if not value.strip():
            raise ValueError("is empty")
        shlex.split(value)  # unbalanced quotes are found here, not on the node
        return ["bash", "-c", value]
    return value


def _file_path(value: str) -> str:
    path = PurePosixPath(value)
    bad = path.is_absolute() or ".." in path.parts or "\\" in value or "\0" in value or _DRIVE.match(value)
    if bad or not path.parts:
        raise ValueError("is not a path below the job file's folder")
    return path.as_posix() + ("/" if value.endswith("/") else "")


def _input_path(value: str) -> str:
    return "." if PurePosixPath(value) == PurePosixPath(".") else _file_path(value)


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise ValueError("is not a name of an environment variable")
    if value.startswith(_RESERVED):
        raise ValueError(f"begins with {_RESERVED}, which is reserved")
    return value


def _value(value: str) -> str:
    if "\0" in value:
        raise ValueError("holds a zero byte")
    return value


def _checkpoint_path(value: str) -> str:
    path = PurePosixPath(value).as_posix()  # without `./` and a last `/`
    if mistake := checkpoint_path_mistake(path):
        raise ValueError(mistake)
    return path


def _setup_line(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return _value(value)


def _requirements_path(value: str) -> str:
    path = PurePosixPath(value).as_posix()  # without `./`
    if mistake := requirements_path_mistake(path):
        raise ValueError(mistake)
    return path


def as_every(value: Any) -> Any:
    # The canonical form has been through here already when a spec is copied.
    return value if isinstance(value, tuple) else parse_every(value)


def as_nodes(value: Any) -> Any:
    """(fewest, most) of a number or a range; what was read before stays as it is."""
    return value if isinstance(value, tuple) else parse_nodes(value)


def as_version(value: Any) -> Any:
    """(major, minor) of a text or a number; what was read before stays as it is."""
    return value if isinstance(value, tuple) else parse_version(value)


def _number(value: Any) -> Any:
    """Numbers only: no text, no truth value; whole numbers and decimals become floats."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not math.isfinite(value):
        raise ValueError("is not a number")
    return float(value)


Name = Annotated[str, StringConstraints(min_length=1, max_length=120)]
Label = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]  # protocol.LABEL_PATTERN
Region = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,32}$")]
Variable = Annotated[str, AfterValidator(_variable)]
Value = Annotated[str, StringConstraints(max_length=VALUE_CHARACTERS_MAX), AfterValidator(_value)]
FilePath = Annotated[str, StringConstraints(min_length=1, max_length=512), AfterValidator(_file_path)]
CheckpointPath = Annotated[str, StringConstraints(min_length=1, max_length=512), AfterValidator(_checkpoint_path)]
SetupLine = Annotated[str, StringConstraints(max_length=SETUP_CHARACTERS_MAX), AfterValidator(_setup_line)]
RequirementsPath = Annotated[str, StringConstraints(min_length=1, max_length=512), AfterValidator(_requirements_path)]
InputPath = Annotated[str, StringConstraints(min_length=1, max_length=512), AfterValidator(_input_path)]
Micros = Annotated[int, BeforeValidator(parse_money)]
Seconds = Annotated[int, BeforeValidator(parse_duration)]
Mib = Annotated[int, BeforeValidator(parse_memory)]
Part = Annotated[int, Field(ge=0, le=99)]  # of a version
Version = Annotated[tuple[Part, Part], BeforeValidator(as_version)]
Number = Annotated[float, BeforeValidator(_number)]
Percent = Annotated[int, Field(ge=0, le=100)]
Words = Annotated[str, StringConstraints(max_length=VALUE_CHARACTERS_MAX), AfterValidator(_value)]


class Section(BaseModel):
    """Base of the sections: frozen, no coercion, and an unknown field is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
