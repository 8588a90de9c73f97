"""Demand, and the conductor: a job file becomes a quote, leases, attempts, artifacts and a bill.

Start reading at `lifecycle.py`. Packages are in the order in which a job meets them, from the public types on:

wire/            the types of the public API
spec/            the job file: parsed, checked, made canonical; one module a kind of job
payment/         arithmetic of what pays, which server and client share
matching/        where a job fits, and what it costs to complete there
quoting/         the signed price promise
pricing/         which asset pays, at which price; what leases have cost so far
kinds/           what a kind of job means to the server: one module a kind
placing/         waiting jobs get nodes
leases/          devices are reserved, extended, and freed at a price
running/         assignments to nodes; reports, logs, events and receipts from them
artifacts/       checkpoints, outputs, inputs and prepared data
escrow/          jobs that a contract pays
bills/           bills, earnings, and signed exports of both
endpoints/       what a served model's address is: versions, replicas, keys, use, money
scaling/         how many replicas, and which: decided without a database
serving/         the loop that keeps endpoints as they should be
sync/            the agents' long poll
gateway/         the process between callers and replicas
api/             routes for customers, agents and gateways
admin/           pages for operators
client/          the `souk` command and the SDK
models/          the tables

apps.py          the Django app
errors.py        every error between a job file and its bill
evaluations.py   the evaluation that follows a training
lifecycle.py     the verbs of a job: submit, cancel, resume, resubmit, finish_attempt, end_job
results.py       what earlier jobs left, and volumes, as inputs of later jobs
states.py        states of jobs, leases, artifacts, endpoints and replicas
sweeps.py        what heals without a message, every few seconds
tasks.py         Celery tasks
urls.py          addresses for customers
"""
