"""A program whose ranks talk to each other."""

from __future__ import annotations

from provider_agent.protocol import ATTEMPT_ENDS
from tests.integration.provider_agent.fake_leases import Lease

# Rank 0 counts lines that come over one connection; rank 1 sends one each 0.1 s until the file `enough` is there.
TALK = """
import os, socket, time
rank, master = os.environ['SOUK_NODE_RANK'], (os.environ['SOUK_MASTER_ADDR'], int(os.environ['SOUK_MASTER_PORT']))
while not any(name == os.environ['SOUK_INTERFACE'] for _, name in socket.if_nameindex()): time.sleep(0.05)
print('interfaces', sorted(name for _, name in socket.if_nameindex()))
def patiently(action):
    while True:
        try: return action()
        except OSError: time.sleep(0.1)
if rank == '0':
    listener = patiently(lambda: socket.create_server(master))
    lines = listener.accept()[0].makefile()
    for number, line in enumerate(lines): print('received', number, line.strip())
else:
    out = patiently(lambda: socket.create_connection(master, 2))
    out.settimeout(60)
    while not os.path.exists('enough'):
        try: out.sendall(b'from one to zero\\n')
        except OSError: pass  # rank 0 has ended
        time.sleep(0.1)
"""


def has_ended(lease: Lease) -> bool:
    """Whether its agent has reported how it ended."""
    return lease.report is not None and lease.report.state in ATTEMPT_ENDS
