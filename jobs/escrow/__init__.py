"""Jobs that are paid by the contract, from the customer's own wallet.

holding.py      the signed hold of such a job, from its quote to its end
delegations.py  which receipt keys speak for a provider's wallet
views.py        what the public API shows of it
"""
