"""The server's commands of `souk`, registered as entry points: each has a Typer app named `app`.

chain.py          `souk chain`: deploy the contracts, check them, show their state
chain_appointments.py  `souk chain`: who has the contract's roles, and closes that are stopped
chain_calls.py    sends one call of a contract's role, or prints it for a multisig
chain_roles.py    `souk chain`: what the contract's roles may do
chain_setup.py    what every `souk chain` command does first
gateway.py        `souk gateway`
ledger.py         `souk ledger`
ledger_corrections.py  `souk ledger`: differences are booked by two people
ledger_setup.py   what every `souk ledger` command does first
up.py             `souk up`
"""
