"""Demand, and the conductor: a job file becomes a quote, leases, attempts, artifacts and a bill.

Start reading at `lifecycle.py`.
"""
