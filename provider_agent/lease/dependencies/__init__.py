"""What a customer's own command needs before it starts: `setup` and `requirements` of the job file.

launcher.py        the shell program that stands before the command: environment, steps, then the command itself
requirements.py    how pip installs a lease's requirements
"""
