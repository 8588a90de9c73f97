"""What the marketplace does with each kind of job. All others use the table, and none compares a kind's name.

base.py     Kind, the interface, as a program that runs to its end needs it; Execution, one of its answers
believing.py which reason counts: what a node reports, or what the server ordered and saw
retrying.py what the end of an attempt means: NextStep, done, tried again, paused or over
table.py    all kinds by name; a name that it does not have raises UnknownKind
train.py    kind: train
command.py  kind: command
serve.py    kind: serve, whose money and replicas are in `jobs/endpoints`

What each kind has in its job file is in `jobs/spec/kinds`, under the same names. To add a kind: its module there
with its section and rules, its module here, a row in both tables, what a node does for it in
`provider_agent/lease/runtimes`, and a migration of the constraint on `Job.kind`.
"""
