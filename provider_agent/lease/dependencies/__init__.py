"""What a customer's own command needs before it starts: `setup` and `requirements` of the job file.

launcher.py        the shell program that stands before the command: environment, steps, then the command itself
requirements.py    how pip installs a lease's requirements, and the key under which the result is kept
environments.py    installed requirements that a node keeps for an organisation: sealed, bounded, whole or absent
installing.py      installs, by a program of the lease's own, what is not kept yet
"""
