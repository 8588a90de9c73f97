"""What a key may use, what a request used, and whether answers were right.

key_grants.py  the cache of key grants, looked up at the marketplace
limits.py      requests, tokens and money that a key may use; requests that an endpoint takes at once
metering.py    makes one row of use from each replica's part of a request
spool.py       rows of use on their way to the marketplace: one writer thread
segments.py    the spool's files: numbered rows with checksums
auditing.py    has a share of the answers computed again by another replica
claims.py      what a replica claims of its answer, and the verdict of another, as data
"""
