"""Rails: the ways by which money comes in and leaves. To add one, add its module and a row in registry.py.

registry.py      all rails in one table: directions, accounts, whether each is on
payments_in.py   the interface of money that comes in
payouts.py       the interface of payouts, and of what reconciliation compares
crediting.py     credits what a rail reports as arrived, once
errors.py        how a call to a rail fails
loopback.py      pretended money is refused where others reach the site

stripe/ and fake/ hold one class a direction each; the chain's classes are in billing/chain.
"""
