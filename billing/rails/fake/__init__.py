"""Pretended money, on loopback only.

payment_rail.py   FakePayments: a card payment that only pretends
payout_rail.py    FakePayouts: a bank that pays nobody
"""
