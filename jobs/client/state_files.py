"""What this computer remembers of marketplaces, a private file a subject beside the settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from jobs.client.errors import UsageMistake

File = TypeVar("File", bound=BaseModel)


def load_state(path: Path, kind: type[File]) -> File:
    """What the file says, or nothing yet; raises UsageMistake for one that is damaged: it is never written over."""
    try:
        return kind.model_validate(json.loads(path.read_text()))
    except FileNotFoundError:
        return kind()
    except (OSError, ValueError, ValidationError, RecursionError) as error:
        raise UsageMistake(f"{path} is damaged; look at it, then remove it.") from error
