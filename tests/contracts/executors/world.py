"""A node in a network namespace of its own, and outside of it everything that a customer's program may want to reach.

    node      198.51.100.2   the container engine runs here, with its own bridges and packet filter
    outside   198.51.100.1   "the internet"; also a neighbour of the provider's, and a cloud's metadata service

One small HTTP server outside answers on all of its addresses, on ports 80 and 25.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

READY_SECONDS_MAX = 10.0
INTERNET = "198.51.100.1"
NODE = "198.51.100.2"
METADATA = "169.254.169.254"
NEIGHBOUR = "192.168.77.7"
CARRIER = "100.64.9.9"
MAIL_PORT = 25
_numbers = itertools.count()
SERVER = """
import http.server, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'reached')
    def log_message(self, *_): pass
servers = [http.server.ThreadingHTTPServer(('0.0.0.0', int(port)), Handler) for port in sys.argv[1:]]
for server in servers[1:]: threading.Thread(target=server.serve_forever, daemon=True).start()
print('ready', flush=True)
servers[0].serve_forever()
"""


@dataclass(frozen=True)
class World:
    """Names of the two namespaces."""

    node: str
    outside: str

    def inside(self, name: str) -> tuple[str, ...]:
        """The command that enters a namespace's network, and nothing else of it."""
        return ("nsenter", f"--net=/run/netns/{name}")

    def run(self, name: str, command: str) -> None:
        """Run one command there."""
        subprocess.run([*self.inside(name), *command.split()], check=True, capture_output=True)


@contextmanager
def make_world() -> Iterator[World]:
    """Both namespaces, joined; gone afterwards with all that is in them."""
    number = f"{os.getpid()}-{next(_numbers)}"
    world = World(f"souk-node-{number}", f"souk-out-{number}")
    servers: list[subprocess.Popen[str]] = []
    try:
        for name in (world.node, world.outside):
            subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
            world.run(name, "ip link set lo up")
        world.run(world.node, f"ip link add out0 type veth peer name node0 netns {world.outside}")
        world.run(world.node, f"ip address add {NODE}/24 dev out0")
        world.run(world.node, "ip link set out0 up")
        for address in (f"{INTERNET}/24", f"{METADATA}/32", f"{NEIGHBOUR}/24", f"{CARRIER}/32"):
            world.run(world.outside, f"ip address add {address} dev node0")
        world.run(world.outside, "ip link set node0 up")
        world.run(world.node, f"ip route add default via {INTERNET}")
        servers += [_serve(world, world.outside, "80", str(MAIL_PORT)), _serve(world, world.node, "80")]
        yield world
    finally:
        for server in servers:
            server.kill()
            server.wait()
        for name in (world.node, world.outside):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _serve(world: World, name: str, *ports: str) -> subprocess.Popen[str]:
    command = [*world.inside(name), sys.executable, "-I", "-c", SERVER, *ports]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + READY_SECONDS_MAX
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    assert time.monotonic() < until
    return server
