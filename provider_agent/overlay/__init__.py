"""A gang's own network: each program has an interface `souk0` that leads to its gang, and nothing else but loopback.

place.py       the overlay's part of the assignment, validated
system.py      commands in the agent's network namespace, and in a program's
wireguard.py   the encrypted kind: the kernel's WireGuard, or wireguard-go
vxlan.py       the plain kind: quicker, for fabrics whose every member is trusted
rules.py       the UDP port is open only to the gang's members while the lease lasts
records.py     what of all this must be found again after a kill
collectives.py what NCCL and gloo are told of the gang's network, with or without an overlay
overlays.py    the life of all of them on this node: made, kept, removed, swept

The interface is made where the agent is, so that its UDP socket stays there, on the node's address in the fabric; then
it is moved into the program's network namespace. A program therefore reaches the others' programs, and never a node.
"""

from provider_agent.overlay.overlays import Overlays as Overlays
from provider_agent.overlay.place import INTERFACE as INTERFACE
from provider_agent.overlay.place import Overlay as Overlay
from provider_agent.overlay.place import overlay_of as overlay_of
