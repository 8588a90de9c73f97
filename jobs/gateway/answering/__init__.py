"""One request, from its first try at a replica to the last byte of its answer. Start at serving.py.

serving.py      the steps of a request, and what runs beside them
work.py         the state of one request, and the metering of its parts
trying.py       tries replicas one after the other, or two at once
opening.py      one try, up to the first output of the engine
relaying.py     sends an answer to the client, whole or as a stream
streaming.py    passes one replica's stream on to its end
continuing.py   continues a stream at another replica
probing.py      requests one token of replicas that are suspected, or that have no requests
disconnects.py  disconnect monitor: cancels the work of callers that hung up, and of waits that took too long
"""
