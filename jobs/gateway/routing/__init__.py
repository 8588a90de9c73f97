"""Which endpoint a request means, which replica answers it, and where it waits until one has free capacity.

directory.py       endpoints by every name that a caller may use
capabilities.py    what a request needs of an engine, and the body that the engine is sent
replica_pool.py    gives requests slots at replicas, at once or in turn
endpoint_queue.py  the queue and the counts of one endpoint; a slot at a replica
fair_queue.py      waiting requests, served in turns by key
router.py          chooses a replica: a pure function
replica_view.py    what this gateway has measured of a replica, and whether it is healthy
hedging.py         a second try beside a slow first one
"""
