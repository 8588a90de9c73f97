"""Stripe: cards in, transfers to providers' accounts out.

client.py         the client; the only module that imports Stripe's library
calls.py          how a call is made once, and a list read whole
payments.py       the calls about customers, cards, payments, refunds, disputes
providers.py      the calls about providers' accounts, transfers, bank payouts
balance.py        the calls about our balance there, and the list of events
records.py        what Stripe answers, as frozen records; how a call can end
booking.py        each change of Stripe's balance reaches the ledger once
booking_types.py  who books each type of change
customers.py      one customer at Stripe an organisation
payment_rail.py   StripePayments: money in
payout_rail.py    StripePayouts: money out
"""
