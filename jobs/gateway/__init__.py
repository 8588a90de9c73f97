"""The gateway: an async process of its own, without Django and without a database.

table.py      what it knows (endpoints, replicas, keys) and what it tells (load, use), as messages
upstream.py   how a request reaches a replica, whatever lies between
"""
