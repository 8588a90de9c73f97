"""The commands of `souk`, one module for each group; each has `register`, which adds its commands.

launch.py            plan, launch
jobs.py              jobs, show, wait, logs, cancel, retry, resume, confirm-price
endpoints.py         endpoints, endpoint, deploy, rollback
keys.py              keys, usage
artifacts.py         artifacts, download, storage
account.py           signup, login, logout
metrics.py           metrics
team.py              members list, role, remove; invitations list, create, revoke, accept
money.py             balance, transfers, topup, deposit
refunds.py           topups; refunds list, create
limits.py            limits list, set, remove; auto-topup show, set, off
invoices.py          invoices list, show, save
disputes.py          disputes list, show, open, answer, withdraw
bill.py              bill, provider earnings
solvency.py          solvency
market.py            offers, provider add-node, provider nodes, provider links
payouts.py           provider pay-to, payouts, pay-out, claim, statement
wallet.py            assets, provider delegate
escrow.py            escrow balance, deposit, withdraw, show
escrow_jobs.py       escrow challenge, finalize, refund, give-up
escrow_stake.py      escrow stake, unstake, revoke-key
escrow_session.py    one contract by one endpoint: simulates, asks, sends, reports
escrow_options.py    the options of the escrow commands
options.py           options that all commands share, and how a job is found
option_groups.py     a dataclass of options as options of a command
"""
