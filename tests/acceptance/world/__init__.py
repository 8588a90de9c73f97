"""A world of several computers on this one: a marketplace outside, a router with NAT, and behind it a provider's nodes.

computer.py   a computer of its own: namespaces, a root file system of its own, everything in it ends with it
network.py    the line outside, the router, the local network; cutting a cable, another address from the provider
supplies.py   what comes from elsewhere and is made once: the agent's packages, the image for training
engine.py     a container engine on a computer
ssh.py        keys, and an SSH server on a computer
making.py     all of it together, and the proof that nothing of it is left
"""
