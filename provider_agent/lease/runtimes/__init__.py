"""What differs between the runtimes that a node can run: one module a runtime.

registry.py   the runtimes by name, and how one is added
base.py       the interface, with what most runtimes share
train.py      trains a model: one process per device, over several nodes if the job asks for it
serve.py      serves a model: one engine, announced to the gateways
command.py    the customer's own command, with no runtime of ours
eval.py       evaluates models: one process for all devices of the node
"""
