"""The way from a gateway to this node's replicas, dialled from here. Nothing listens; of a lease one socket is reached.

tunnels.py    which lease is announced to which gateways
link.py       one connection to one gateway: dialled, proven, kept alive, dialled again
exchange.py   one request: from a stream of the tunnel to the engine and back
engine.py     the engine's socket, and connections to it that are used again
responses.py  HTTP/1.1 as an engine speaks it, with limits
counting.py   what went through, a lease
"""

from provider_agent.tunnel.counting import Counts
from provider_agent.tunnel.tunnels import Tunnels

__all__ = ["Counts", "Tunnels"]
