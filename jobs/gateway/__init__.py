"""The gateway: an async process of its own, without Django and without a database, between callers and replicas.

    process.py            builds one gateway from its parts and serves until SIGTERM
    backend.py            builds what answers requests: the tunnels' hub, `Serving`, the auditor
    config.py             settings from the environment and options; the gateway's id and key in its data folder
    messages.py           the messages that gateways and the marketplace exchange
    control_sync.py       control-plane sync: once a second sends load and use, receives endpoints and key grants
    inference_request.py  a validated request, and the interface of the client that waits for its answer
    strict_json.py        numbers that a decoder of JSON must refuse
    errors.py             refusals in OpenAI's form
    metrics.py            /metrics

A request goes through the subpackages in this order:

    frontend/     HTTP: connections, headers, bodies, routes, validation
    routing/      which endpoint and which replica, and the queue before it
    answering/    tries a replica and passes its answer on; start at `answering/serving.py`
    engines/      what engines are sent and answer: streams, token counts, the interface to a replica
    tunnels/      the gateway's end of the tunnels that agents open
    accounting/   key grants, limits, use on disk, audits of answers
"""
