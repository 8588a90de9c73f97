"""What the marketplace does with each kind of job. All others use the registry, and none compares a kind's name.

registry.py  all kinds by name, and how one is added
base.py      Kind, the interface, as a program that runs to its end needs it; Execution, one of its answers
train.py     kind: train
command.py   kind: command
eval.py      kind: eval
serve.py     kind: serve, whose money and replicas are in `jobs/endpoints`
believing.py which reason counts: what a node reports, or what the server ordered and saw
retrying.py  what the end of an attempt means: NextStep, done, tried again, paused or over

What each kind has in its job file is in `jobs/spec/kinds`, under the same names.
"""
