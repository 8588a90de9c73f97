"""/earn: what a provider rents out.

views.py      the nodes with their earnings, the page of one node, and how far a new one is
actions.py    a line that makes a computer a node; drain, resume and price of one
urls.py       the addresses
"""
