"""What a node can rent out: NVIDIA GPUs, or shares of the processor where there is none.

base.py       finds the devices of this node
nvidia.py     NVIDIA GPUs as NVML reports them
cpu.py        shares of the processor as devices, each pinned to cores
memory.py     how much of the node's memory its leases share
identity.py   which card this is, by more than its UUID
health.py     figures of GPUs, and whether one must leave the market
xids.py       what an Xid event means for a GPU
"""
