"""What the nodes get from elsewhere, made once on this computer: the agent's packages, and the image for training.

The nodes reach nothing but the marketplace. As an operator without the internet would, it offers a folder of wheels.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

NODE_PYTHON = "/usr/bin/python3"  # Debian's: every user may run it
PACKAGES = (
    "docker.io debootstrap iptables iproute2 conntrack e2fsprogs util-linux openssh-server curl python3-venv "
    "wireguard-tools wireguard-go"
)
KEPT = {"SOUK_NO_SKIPS"}  # a setting of the person who runs the tests
NEEDED = (
    *("unshare", "nsenter", "ip", "bridge", "iptables", "conntrack", "curl", "sshd", "ssh-keygen", "dockerd", "docker"),
    *("debootstrap", "mkfs.ext4", "setpriv", "wg", "wireguard-go"),
)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def why_not() -> str:
    """Why no world can be made on this computer; empty when one can."""
    if os.geteuid() != 0:
        return "namespaces, container engines and packet filters need root"
    missing = [name for name in NEEDED if shutil.which(name, path=PATH) is None]
    serves = [NODE_PYTHON, "-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"]
    if not Path(NODE_PYTHON).exists() or subprocess.run(serves, check=False, capture_output=True).returncode != 0:
        missing.append("python3-venv of 3.11 or newer")
    return f"not installed: {', '.join(missing)}; apt-get install -y --no-install-recommends {PACKAGES}" * bool(missing)


def of_pytest() -> list[str]:
    """Variables that tests/conftest.py set; a marketplace of its own starts servers and finds settings of its own."""
    return [name for name in os.environ if name.startswith(("DATABASE_URL", "REDIS_URL", "SOUK_")) and name not in KEPT]
