"""The escrow contract: built, deployed, known.

compiling.py    the build is that of the source: compiled, compared
deploy.py       a contract deployed and checked against its build
registry.py     tokens and contracts become assets of the ledger
challenges.py   what customers challenged, with the evidence
periods.py      a contract's periods and fee, read once
"""
