"""A job's curve as the files of other tools, written on the customer's computer.

Here and not on the nodes: the marketplace has the curve of the whole run, of all attempts, also of own programs; a node
has no network, no package of these tools, and no key to them.

run.py           what is exported: the job, and the points of its curve by their steps
formats.py       the table of formats: what writes each, and which package that needs
csv_table.py     a line a point
tensorboard.py   event files
wandb.py         an offline run of Weights & Biases
mlflow.py        a file store of MLflow
"""
