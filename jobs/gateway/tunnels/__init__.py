"""The gateway's end of the tunnels that agents dial: who may announce what, and requests through them.

hub.py       every tunnel, and the way to each replica
tunnel.py    one connection
answers.py   one request through it
"""

from jobs.gateway.tunnels.hub import TunnelHub

__all__ = ["TunnelHub"]
