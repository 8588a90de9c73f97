"""One lease on this node, from its assignment to its removal.

    assignments.py         decides whether an assignment may run here: signature, fence, devices, runtime
    attempts.py            the lifecycle of one lease, and its tasks
    record.py              the only writer of a lease's state
    preparation.py         everything before the program starts
    workfolder.py          folders, configuration and environment of the program
    fetch.py               fetches an artifact's files, each checked by its SHA-256
    weights.py             the models that serving leases share
    watching.py            watches the program until it has ended
    meter.py               billable milliseconds
    generations.py         goes on in its gang when that has other nodes, or joins one
    deadline.py            when the lease ends, by the monotonic clock
    watchdog.py            stops leases whose deadline passed without contact
    stop_signal.py         the request to stop a program
    endings.py             from exit code, signal or error to one Reason
    snapshot.py            takes files out of a program's reach before the agent reads them
    log_shipper.py         sends logs and events
    artifact_shipper.py    sends checkpoints and the output
    collecting.py          finds what a program left: output/, and what it made or changed beside it
    disk_use.py            whether a program filled the node's disk
    walking.py             walks a program's folders within limits
    receipts.py            makes and sends usage receipts
    usage_statements.py    makes and sends token usage statements of a serving lease
    serving.py             announces a serving lease to the gateways
    orphan_containers.py   ends programs without a lease

runtimes/ has one module per runtime that a node can run. path_checkpoints/ copies and restores the path that a job file
names for a program that knows nothing of checkpoints. dependencies/ does what a job file wants before its command.
cache/ keeps what jobs of one customer leave for later ones.
"""
