"""The rows of the pages' tables, a function a result; benchmarks/figures.py has the others, and writes them.

serving.py   web, gateway, tunnels, autoscaling, verified inference
training.py  speed, memory, planned steps, gangs that lose nodes
"""
