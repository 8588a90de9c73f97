"""The tunnels from this node's replicas to the gateways, opened by the agent: nothing on the node listens.

    tunnels.py              which lease is announced to which gateways
    gateway_connection.py   the connection to one gateway: authenticated, kept alive, dialled again
    dialling.py             the WebSocket that it is made of
    exchange.py             one request: from a stream of the tunnel to the engine and back
    engine.py               the engine's socket, and connections to it that are used again
    responses.py            an engine's HTTP/1.1 responses, with limits
    counting.py             what went through the tunnels, per lease

Of a lease only one socket can be reached.
"""

from provider_agent.tunnel.counting import Counts
from provider_agent.tunnel.tunnels import Tunnels

__all__ = ["Counts", "Tunnels"]
