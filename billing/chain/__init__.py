"""The chains: the escrow contract, our transactions, and what we read. Only here is web3 imported.

config.py         the chains that are configured
keys.py           our signing keys by role
wallets.py        addresses, and whose account each is
operating.py      the calls that an operator may make, role by role
escrow.py         holds and claims of jobs in the contract
displacing.py     a job keeps its id in our books, whoever used it in the contract first
payout_roots.py   payout roots, by which providers claim
merkle.py         the trees of those roots
stakes.py         providers' stakes, and what offences take of them
coins.py          warns when a key's coins for gas run out
positions.py      what our contracts hold, and how it changed
payment_rail.py   ChainPayments: money in
payout_rail.py    ChainPayouts: money out
errors.py         what chains refuse
"""
