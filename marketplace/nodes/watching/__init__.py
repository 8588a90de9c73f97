"""What is observed of nodes.

charts.py        time series as SVG, for the operators' pages
liveness.py      heartbeats, and which nodes are silent
metrics.py       time series of nodes and leases: minutes, then hours
reputation.py    what can be expected of a node, from what happened
"""
