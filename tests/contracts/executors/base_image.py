"""Debian with Python, from which the container engines of the tests get their images. As root, from the project's root:

    python -m tests.contracts.executors.base_image

makes it ahead of the tests, as `make containers` does: it takes longer than a single test may.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

CACHE = Path("/var/cache/souk-tests")
IMAGE_TAR = CACHE / "bookworm-python3-venv.tar"
DEBOOTSTRAP_SECONDS_MAX = 900
# Of debootstrap's result: half of its bytes, which every engine would unpack.
UNUSED = ("var/cache/apt/*", "var/lib/apt/lists/*", "usr/share/doc/*", "usr/share/man/*", "usr/share/locale/*", "tmp/*")
# debootstrap mounts /proc in what it makes. In namespaces of its own, which end with it, nobody else removes files
# through that mount, whatever ends it early.
OWN_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child")


def image_tar() -> Path:
    """The image's file; made by the first who asks on this computer, in about a minute."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "base-image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not IMAGE_TAR.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as name:
                _make(Path(name))
    return IMAGE_TAR


def _make(folder: Path) -> None:
    root, packed = folder / "root", folder / "image.tar"
    packages = "--include=python3,python3-venv,ca-certificates"
    command = [*OWN_NAMESPACES, "debootstrap", "--variant=minbase", packages, "bookworm", str(root)]
    # Debian compiles its Python modules, and beside them is where the containers' Python looks.
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPYCACHEPREFIX"}
    subprocess.run(command, env=own, check=True, capture_output=True, timeout=DEBOOTSTRAP_SECONDS_MAX)
    leave_out = [f"--exclude=./{path}" for path in UNUSED]
    subprocess.run(["tar", "-C", str(root), *leave_out, "-cf", str(packed), "."], check=True)
    packed.rename(IMAGE_TAR)


def main() -> None:
    """Make the image where its tests can run; elsewhere they skip, and say what is missing."""
    if os.geteuid() == 0 and shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
        image_tar()


if __name__ == "__main__":
    main()
