"""The books: one immutable ledger, and all that reads or proves it.

ledger.py              the only entry point by which money moves: post
chart_of_accounts.py   accounts by what they are for: found, opened, locked
balances.py            what an account holds, with what was not rolled up yet
owned.py               all balances of one owner
deposits.py            money that enters, credited once per rail and reference
exchange.py            one asset for another, at a quote
escrow_flows.py        which events of the escrow contract move tokens in or out
hash_chain.py          the hash chain over all transfers, and a root a day
verify.py              recomputes everything: sums, digests, chain, receipts
verify_mirror.py       the same for what mirrors the chain
verify_events.py       the same for events, and for top-ups
sql_privileges.py      the SQL privileges with which the service needs no more than it uses
"""
