"""What a job costs and what pays for it, from the database.

assets.py       which asset pays, and its price now
funds.py        what an organisation can spend
costs.py        what leases have cost so far
price_locks.py  at which token price a job is paid now
"""
