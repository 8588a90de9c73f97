"""The tunnel between a gateway and the replicas of one node: one WebSocket that the agent dials, many requests in it.

    hello.py     both ends prove who they are, before anything is announced
    frames.py    the frames, and how large each may be
    streams.py   one request: its two directions, and the credit of each
    mux.py       all of them over one connection, in turns
    tuning.py    options of the TCP socket

No file here opens a socket: the agent's end (`provider_agent.tunnel`) and the gateway's (`jobs.gateway.tunnels`) bring
their own, and both use this code, so that they agree.
"""
