"""Tiny wheels, written by hand: what a file of requirements names, without a network."""

from __future__ import annotations

import io
import zipfile


def make_wheel(name: str, version: str, code: str) -> tuple[str, bytes]:
    """A wheel with one module of that name; returns its file name and its bytes."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(zipfile.ZipInfo(path), text)  # without the time: always the same bytes
    return f"{name}-{version}-py3-none-any.whl", out.getvalue()
