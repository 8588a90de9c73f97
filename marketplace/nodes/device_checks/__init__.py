"""Device checks: a node computes and remembers what only the devices it claims can.

checking.py    the steps of a check
demands.py     when a check is demanded of a node
findings.py    what a check found: each number measured, beside the number needed
verdicts.py    the end of a check, and what follows from it for the node
"""
