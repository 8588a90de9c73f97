"""Money by card: top-ups, refunds, chargebacks, and the accounts through which providers are paid.

topups.py          a customer pays in: requested, opened at a rail, credited
calls.py           the calls that the outbox makes for cards
intents.py         what Stripe reports of its pages and payments
events.py          Stripe's events: stored once, processed in any order
sweeping.py        refreshes what no event reported
customers.py       who pays, and the saved cards
rules.py           the rule for automatic top-ups
automatic.py       automatic top-ups, by that rule
refunds.py         unspent balance goes back to its card
chargebacks.py     a bank takes a payment back
fraud_warnings.py  a bank warns that a payment may be fraud
evidence.py        our side of a dispute, prepared
recovery.py        who pays for a chargeback
claims.py          while a claim on a customer is unpaid, its balance is empty
accounts.py        providers' accounts at Stripe
errors.py          what all this refuses
"""
