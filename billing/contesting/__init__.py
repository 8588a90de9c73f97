"""What is contested after a settlement, and what follows from an offence.

disputes.py    a customer contests a lease: opened, answered, decided
offences.py    what a provider broke is fined, from its pay first
penalties.py   the table of penalties by reason
"""
