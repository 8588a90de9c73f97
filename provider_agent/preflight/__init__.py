"""What a computer must have before it becomes a node. Standard library only: it runs out of the wheel, uninstalled.

__main__.py     `python -m provider_agent.preflight --server URL`
examine.py      all checks, in an order in which the first FIX is the first to fix
finding.py      one line of the report
interpreter.py  whether the agent's user can enter the runtime's interpreter
machine.py      operating system, Python, memory, disk
network.py      the connection to the marketplace: reachable, same time, fast enough
containers.py   GPUs, their driver, the container engine, the toolkit between them
image.py        the images that measure, train and serve
abilities.py    disks of a fixed size, the internet, other nodes
serving.py      whether models could be served here
"""
