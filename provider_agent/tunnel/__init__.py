"""The way from a gateway to this node's replicas, dialled from here.

    tunnels.py    which lease is announced to which gateways
    link.py       one connection to one gateway: dialled, proven, kept alive, dialled again
    dialling.py   the WebSocket that it is made of
    exchange.py   one request: from a stream of the tunnel to the engine and back
    engine.py     the engine's socket, and connections to it that are used again
    responses.py  HTTP/1.1 as an engine speaks it, with limits
    counting.py   what went through, a lease

Nothing listens, and of a lease one socket alone is reached.
"""

from provider_agent.tunnel.counting import Counts
from provider_agent.tunnel.tunnels import Tunnels

__all__ = ["Counts", "Tunnels"]
