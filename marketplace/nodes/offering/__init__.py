"""Whether a node can be rented, when, and on which terms.

availability.py    drain and resume, quarantine and release
offers.py          publish, change and withdraw the terms
newest.py          of two changes the one that was signed later counts
schedule.py        opening hours, and windows in which the node is closed
"""
