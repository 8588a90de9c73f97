"""Waiting jobs get their leases, at a price that is good now.

placement.py      matches what waits, and makes hold, attempt and leases in one transaction a job
replacing.py      gives gangs that lost nodes other ones
growing.py        gives gangs more nodes, where that is cheap and nobody waits for them
growing_gangs.py  how such a gang is scored
growing_looks.py  what one look at all of them knows of the fleet and of what waits
funding.py        sets aside jobs whose money is not there, until it is
reasons.py        shows each job that waits for what, and what would help where nothing else will
requotes.py       keeps, changes or has its customer confirm the token price of a job that waits
"""
