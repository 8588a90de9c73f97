"""The periodic work on every chain, in the order in which it is done.

chains.py    read, book, publish roots, sweep, send
upkeep.py    slashes that are due, and coins for gas
waiting.py   wait for one transaction, following its chain meanwhile
"""
