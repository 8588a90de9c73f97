"""Each module is compiled once for all test processes, however many start and whatever the shell sets for bytecode.

A marketplace is five Django processes, and an agent's tests start hundreds. Where nobody keeps bytecode (a checkout
that must stay clean, an environment installed without it), each of them would spend most of its start on compiling.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
KEPT: Final = ROOT / ".cache" / "bytecode"  # Python compares each file's time and size with its source's


def keep() -> None:
    """From now on this process and those that it starts keep bytecode in one folder beside the code."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(KEPT)
    sys.dont_write_bytecode = False


def forget_what_is_gone() -> None:
    """Of copies and installations in the folder for temporary files, which no later session has, nothing is kept."""
    temporary = Path(tempfile.gettempdir()).resolve()
    for kept in (KEPT / temporary.relative_to("/")).glob("*"):
        if not ROOT.is_relative_to(temporary / kept.name):
            shutil.rmtree(kept, ignore_errors=True)
