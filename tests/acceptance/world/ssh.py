"""Real OpenSSH on computers of the world, and the provider's key."""

from __future__ import annotations

import time

from tests.acceptance.world.computer import Computer, ComputerFailed

READY_SECONDS_MAX = 10.0
KEY = "/root/provider/id_ed25519"  # on the provider's own computer, and nowhere else
LOG = "/var/log/sshd.log"
SETTINGS = """
HostKey /etc/ssh/souk_host_key
PidFile none
AuthorizedKeysFile /etc/ssh/souk_authorized
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
LogLevel VERBOSE
"""


def make_key(computer: Computer) -> str:
    """A key pair on the provider's computer; returns the public half."""
    computer.shell(f"mkdir -p -m 700 $(dirname {KEY}) && ssh-keygen -q -t ed25519 -N '' -f {KEY}")
    return computer.run("cat", f"{KEY}.pub")


def start_ssh(computer: Computer, public_key: str, *, address: str) -> str:
    """A server for that key on one address; returns the fingerprint of its own."""
    computer.shell("ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/souk_host_key")
    computer.write("/etc/ssh/souk_authorized", public_key)
    computer.write("/etc/ssh/souk_sshd_config", f"ListenAddress {address}\n{SETTINGS}")
    computer.start_program("/dev/null", "/usr/sbin/sshd", "-D", "-f", "/etc/ssh/souk_sshd_config", "-E", LOG)
    until = time.monotonic() + READY_SECONDS_MAX
    while "Server listening" not in computer.run("cat", LOG, is_checked=False):
        if time.monotonic() > until:
            raise ComputerFailed(f"{computer.name}: sshd did not start: {computer.run('cat', LOG, is_checked=False)}")
        time.sleep(0.05)
    return computer.run("ssh-keygen", "-lf", "/etc/ssh/souk_host_key").split()[1]
