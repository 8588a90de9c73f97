"""The ledger held against the outside.

reconciling.py   every rail that is on, and a report; a difference stops payouts
correcting.py    a difference is booked by two people
comparing.py     one rail's positions and movements against the ledger
coins.py         the coins with which our keys pay for gas
"""
