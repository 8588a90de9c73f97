"""The operator's view of demand, a file a subject; Django finds the pages through these imports.

demand.py   quotes, jobs, attempts, leases
serving.py  endpoints, versions, replicas, gateways, audits
storage.py  quotas of organisations and what they paid for what they kept; second copies, results as inputs, volumes
usage.py    keys and token use
"""

from jobs.admin import demand, serving, storage, usage

__all__ = ["demand", "serving", "storage", "usage"]
