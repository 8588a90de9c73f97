"""The gateway's end of the tunnels that agents dial: who may announce what, and requests through them.

    hub.py       every tunnel, and the way to each replica
    tunnel.py    one connection
    answers.py   one request through it

Frames, credit and turns are the protocol's, of which the agent has the other end: `provider_agent.protocol.tunnel`.
"""

from jobs.gateway.tunnels.hub import TunnelHub

__all__ = ["TunnelHub"]
