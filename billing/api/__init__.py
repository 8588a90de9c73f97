"""/api/v1 of money: views translate a request, call one verb, and answer.

balance.py          balances and transfers
deposits.py         what was paid in
topups.py           top-ups, their refunds, the automatic rule
cards.py            saved cards
webhook.py          Stripe's webhook
stripe_errors.py    Stripe's failures, with a name, in answers
payouts.py          payouts, settings, accrual, statements
payout_account.py   the provider's account at Stripe
chain.py            escrow contracts and proofs of payouts
disputes.py         contested leases
invoices.py         invoices and billing details
limits.py           spend limits
promotions.py       given credit
solvency.py         solvency reports and proofs
amounts.py          the field of an amount
"""
