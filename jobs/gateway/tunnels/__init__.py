"""The gateway's end of the tunnels that agents open: who may announce which replica, and requests through them.

    hub.py         every tunnel, and the route to each replica
    handshakes.py  connections that have not proven who they are
    tunnel.py      one connection
    answers.py     one request through it

Frames, credit and turns are in `provider_agent.protocol.tunnel`, which both ends use.
"""

from jobs.gateway.tunnels.hub import TunnelHub

__all__ = ["TunnelHub"]
