"""Other versions of the agent's wheel, really built: the same code, and what a test breaks in it."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path


def rebuild_wheel(
    wheel: Path, folder: Path, version: str, changes: Mapping[str, tuple[str, str]] | None = None
) -> Path:
    """The wheel as `version`, with text replaced in some files; RECORD follows."""
    old = wheel.name.split("-")[1]
    made = folder / f"gpusouk-{version}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    record = []
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as out:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("/RECORD"):
                continue
            if name.endswith("/METADATA"):
                data = data.replace(f"\nVersion: {old}\n".encode(), f"\nVersion: {version}\n".encode())
            if change := (changes or {}).get(name):
                assert change[0].encode() in data, f"{name} has changed"
                data = data.replace(change[0].encode(), change[1].encode())
            new_name = name.replace(f"gpusouk-{old}.dist-info", f"gpusouk-{version}.dist-info")
            out.writestr(new_name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{new_name},sha256={digest},{len(data)}\n")
        at = f"gpusouk-{version}.dist-info/RECORD"
        out.writestr(at, "".join([*record, f"{at},,\n"]))
    return made
