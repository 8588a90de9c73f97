"""The periodic loop over endpoints: observe, decide (`jobs.scaling`), plan the steps, place. Start at reconcile.py.

reconcile.py          one tick over all endpoints: decides, starts and drains replicas
observe.py            an endpoint's rows and load, as input of the decisions
replica_placement.py  places replicas that are missing, each with its lease and money
placement_slots.py    the best free placement slot for one replica
prepaid_windows.py    refills prepaid windows, and settles leases once a day
audits.py             stores audits of answers, and ends the leases that they prove wrong
"""
