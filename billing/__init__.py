"""Money: one double-entry ledger, holds, metering from signed receipts, settlement.

books.deposits.credit -> charging.holds.place_hold -> charging.metering.accept_receipts
-> charging.settlement.settle_job -> charging.releasing.release_pending

Whatever moves money does so through `books.ledger.post`. Owners, jobs and leases are known by their ids only.

books/            the ledger, its accounts, its hash chain, its verification
charging/         holds, limits, metering, settlement, release
contesting/       disputes, offences and their penalties
rails/            the ways in and out: one interface a direction, one registry
fiat/             cards, refunds, chargebacks, providers' accounts at Stripe
chain/            the escrow contract, our transactions, its events
chain_following/  one look at every chain, again and again
payouts/          money that leaves for providers
prices/           prices of tokens
reconciliation/   the books compared with Stripe and the chains
solvency/         what is owed, and proofs of it
proofs/           what anybody checks without a server
invoices/         invoices and credit notes
notices/          alerts to operators, mail to users
api/              routes for customers and providers
admin/            pages for operators
models/           the tables
states/           state machines

account_kinds.py   the chart of accounts: kinds of account, with their rules
apps.py            the Django app
breaker.py         stops payouts until an operator has looked
dispatch.py        makes the calls that the outbox holds
errors.py          every error of money
fields.py          exact amounts in the database
functions.py       the SQL functions of sql/, called from Python
money.py           amounts: shown, read, split without loss
tasks.py           Celery tasks
transfer_codes.py  why money moved, and in which mode
urls.py            addresses below /api/v1
"""
