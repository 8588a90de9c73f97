"""What a customer's own command needs before it starts: `setup` and `requirements` of the job file.

launcher.py        the shell program that stands before the command: environment, steps, then the command itself
requirements.py    how pip installs a lease's requirements
environments.py    which environment of an earlier job may be used again, by a key of all that decides it
packing.py         packs an environment in the program's sandbox, and unpacks it for a later job
"""
