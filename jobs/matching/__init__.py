"""Which nodes a job goes to, and why not to others: a pure function of jobs and a snapshot of the fleet.

Only `fleet.py` and `link_speeds.py` read the database; the rest has no ORM and no clock: the same input gives the same
answer.

demand.py             what one job demands, as the matcher reads it
demand_from_spec.py   from a job file to that demand
snapshot.py           the fleet at one moment, in columns
fleet.py              that snapshot, read from the database
fit.py                strict fit of each node, with a reason where it does not fit
exclusion_reasons.py  those reasons, in their order
fabrics.py            which nodes reach each other
link_speeds.py        what lies between the nodes of a gang, read for the places that are shown
places.py             one node or a gang that takes a whole demand, with its cost
score.py              the score of a place: its expected cost to complete
growth.py             whether more nodes are worth it for a gang that trains
reservations.py       what is kept for a job that waits
match.py              places a batch of waiting jobs
reference.py          the price on which a quote's ceiling rests
plan.py               the plan of one job, for its quote
explain.py            why nodes were excluded, in words
fixes.py              the nearest change that would make a job fit
"""
