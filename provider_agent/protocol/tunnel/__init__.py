"""The way between a gateway and the replicas of one node: one WebSocket that the agent dials, many requests in it.

    hello.py     who is who, before anything is announced
    frames.py    what goes over it, and how large each thing may be
    streams.py   one request: its two directions, and the credit of each
    mux.py       all of them over one connection, in turns
    tuning.py    what is asked of TCP

No file here opens a socket: the agent's end (`provider_agent.tunnel`) and the gateway's (`jobs.gateway.tunnels`) bring
their own, and both stand on the same code, as both must mean the same.
"""
