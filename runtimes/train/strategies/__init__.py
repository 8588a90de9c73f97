"""How the ranks of one training share its work: one module a strategy.

registry.py   the strategies by name, and how one is added
base.py       Strategy: what the training loop calls, and the defaults of a synchronous data-parallel training
fsdp2.py      parameters, gradients and optimizer state sharded over the ranks (FSDP2)
hsdp.py       sharded over the ranks of a node, whole on each node (HSDP)
ddp.py        the whole model on every rank, gradients averaged (DDP)
"""
