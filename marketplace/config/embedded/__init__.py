"""Embedded mode: PostgreSQL, Redis and Souk's own processes as children of one command.

attach.py            lets operators' commands reach a running marketplace
child_supervisor.py  keeps the children running, and stops them in reverse order
children.py          a child process that cannot outlive its parent
devchain.py          the development chain
errors.py            every error of the start
folder.py            the data folder, its lock and its secrets
marketplace.py       starts everything in order
orphans.py           ends processes that an earlier start left behind
postgres.py          the embedded PostgreSQL
prepare.py           migrates the database and creates the first operator
processes.py         web, sync, gateway, worker, beat, and the sockets they listen on
redis.py             the embedded Redis
serve_sync.py        the sync process
"""
