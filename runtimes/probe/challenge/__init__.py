"""Answers the marketplace's demand for work: a chain of exact matrix products, and memory filled and read back.

__main__.py   one process a device
answer.py     one device's answer
exchange.py   the messages between the agent and these processes
chain.py      the chain of matrix products
memory.py     the memory that is filled
words.py      pseudo-random words, the same as the server's
"""
