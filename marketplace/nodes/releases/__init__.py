"""Releases of the agent: what is published, and which share of the nodes should have it.

    catalogue.py     which release counts, and which one a new node installs
    publishing.py    publish a release; withdraw the newest ones and roll the nodes back to an older one
    progress.py      how many nodes have a release, wait for it, or rolled it back
    rollout.py       the sweep that sends a release to more nodes, halts or completes it; pause, resume, set the share

Every function that decides locks all releases first (`catalogue.lock_all`): one decision about them at a time.
"""
