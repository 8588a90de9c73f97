"""The devices of a node.

devices.py        devices as the agent reports them, and how fast they were measured
gpu_versions.py   which CUDA and compute capability of a GPU count
identity.py       one GPU is sold by one node only
"""
