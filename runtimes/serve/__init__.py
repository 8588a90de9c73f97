"""The serving runtime: brings a model up behind one Unix socket, and reports `ready` only after one real token.

In the order in which a replica goes through them:

__main__.py        the process: its options and its exit code
config.py          the configuration, checked whole
replica.py         one replica from its start to its end
weights.py         finds the model's folder, and checks that nothing in it can run code
model.py           the model as it was found
devices.py         what this replica computes on
choose.py          which engine serves the model here
engines/           the engines, one module each
process.py         the engine's process
engine_client.py   one HTTP request to an engine, within bounds
listener.py        the socket on which callers' requests come, and their way to the engine
warm.py            waits for the engine, and for the first token
watchdog.py        finds an engine that runs and computes nothing
metrics.py         reports what was served
commitments.py     commitments to computed activations
verification.py    whether a recomputed answer matches its commitment
errors.py          everything that ends a replica with a message
"""
