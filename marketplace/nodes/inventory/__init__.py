"""The devices of a node.

devices.py     devices as the agent reports them, and how fast they were measured
identity.py    one GPU is sold by one node only
"""
