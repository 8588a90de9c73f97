"""How a program is started, watched, stopped and found again: as a process group, or in a container (docker/).

base.py                what every executor guarantees
process.py             programs as process groups of the agent's own user: no isolation but from the agent
landlock.py            hides the agent's folder from them
process_supervisor.py  outlives the agent beside one process: writes its log, and how it ended
scratch.py             a disk of its own size for each lease
firewall.py            keeps containers with internet access from the node, its network and other tenants
"""
