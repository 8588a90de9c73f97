"""What the agent needs of the operating system. Imports nothing else of the agent but its errors.

agent_lock.py     one agent per data folder
atomic.py         files that are either the old or the new one, also after a power cut
capabilities.py   the capabilities of root that the agent needs for containers
guard.py          how every command ends: one line for an error, and the documented exit status
programs.py       where the system's programs are searched
removal.py        removes folders however deep they are
trust.py          the certificates that the agent trusts
"""
