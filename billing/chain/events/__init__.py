"""The contract's events: read in order, booked once.

indexer.py   reads blocks and events, and undoes what lost its block
effects.py   what each event does to the books
hold_effects.py  the same of holds and leases
role_effects.py  the same of roles
booking.py   one event's arguments, and the transfers that it causes
"""
