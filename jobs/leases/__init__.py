"""The right to devices: reserved, kept alive, fenced, ended with a price.

leasing.py        reserve devices, extend the right to them, end it and decide what it cost
fencing.py        whose report of a lease counts
gangs.py          who is in a gang, and under which addresses
joining.py        leases that wait to join a gang which grows
unpaid.py         spans of its time that are not paid
sharing.py        their caps, shared anew when a gang grows or shrinks
failure_rate.py   how long the nodes of an attempt run until one fails
billing_facts.py  what billing keeps of a lease that ended
"""
