"""How a node joins and leaves.

enrolment.py    issue a token, enrol a node with it, retire a node
"""
