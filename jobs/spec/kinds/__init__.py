"""What each kind of job has in its job file, and what follows from that alone; no Django, no I/O.

base.py     SpecKind, the interface: a section, its rules, canonical form, declared work
registry.py all kinds by name: the only place that lists them; a name that it does not have is refused
train.py    kind: train, the built-in training runtime
serve.py    kind: serve, a model behind an endpoint
command.py  kind: command, a program of the customer's own
eval.py     kind: eval, tasks of lm-evaluation-harness asked of one or several models
shared_folders.py  paths of our own runtimes that lie in shared host folders
flops.py    how many floating-point operations a training takes

What the marketplace does with a job of each kind stands in `jobs/kinds`, under the same names.
"""
