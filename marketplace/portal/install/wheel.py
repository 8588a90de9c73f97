"""Makes the agent's wheel of the code that runs here. The same code gives the same bytes on every server.

No build tool is needed where the marketplace runs: a pure wheel is a zip of the packages and their metadata (PEP 427).
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from marketplace.portal.errors import NoAgentWheel

DISTRIBUTION: Final = "gpusouk"
PACKAGES: Final = ("billing", "jobs", "marketplace", "provider_agent", "runtimes")
SITE: Final = Path(__file__).resolve().parents[3]  # the folder that holds the packages: a checkout, or site-packages
EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can store
MODE: Final = 0o100644 << 16
ABOUT: Final = ("entry_points.txt", "top_level.txt", "licenses/LICENSE")


def build_wheel(folder: Path) -> Path:
    """The wheel, in `folder`, whole or not at all; raises NoAgentWheel where the distribution is not installed."""
    try:
        installed = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        raise NoAgentWheel(reason=f"{DISTRIBUTION} is not installed here (make up, or pip install)") from None
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{DISTRIBUTION}-{installed.version}-py3-none-any.whl"
    part = wheel.with_suffix(".part")
    info = f"{DISTRIBUTION}-{installed.version}.dist-info"
    record = []
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in (*_sources(), *_metadata(installed, info)):
            _add(archive, name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
        _add(archive, f"{info}/RECORD", "".join([*record, f"{info}/RECORD,,\n"]).encode())
    part.replace(wheel)
    return wheel


def _sources() -> Iterator[tuple[str, bytes]]:
    """Every file of the packages, in order; not what Python or an editor left beside them."""
    for package in PACKAGES:
        for path in sorted((SITE / package).rglob("*")):
            parts = path.relative_to(SITE).parts
            if (
                path.is_file()
                and path.suffix != ".pyc"
                and not any(part.startswith((".", "__pycache__")) for part in parts)
            ):
                yield "/".join(parts), path.read_bytes()


def _metadata(installed: Distribution, info: str) -> Iterator[tuple[str, bytes]]:
    yield f"{info}/METADATA", (installed.read_text("METADATA") or installed.read_text("PKG-INFO") or "").encode()
    yield f"{info}/WHEEL", b"Wheel-Version: 1.0\nGenerator: gpusouk\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    for name in ABOUT:
        if text := installed.read_text(name):
            yield f"{info}/{name}", text.encode()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, MODE
    archive.writestr(entry, data)
