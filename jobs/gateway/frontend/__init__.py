"""HTTP, from a connection to a validated request.

app.py          the ASGI application: routes, and the order in which a request is checked
connections.py  bounds on the number, bytes and time of connections
clients.py      the caller's end of one request
headers.py      the key, method and type of a request; the headers of every answer
bodies.py       reads bodies within bounds
validation.py   what a body may contain
listing.py      /v1/models
refusals.py     the errors of this package, and the headers of any error
"""
