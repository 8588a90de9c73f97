"""The process that agents sync with: it holds their requests and answers when something changes.

app.py           the ASGI application
server.py        one sync from its request to its answer
answers.py       what is answered, from the database
batch_loader.py  requests that come at once, loaded together
waiting.py       held requests, and what wakes them
changes.py       nodes for which something was decided
beats.py         heartbeats, written in batches
memory.py        what is remembered of a node between its syncs
"""
