"""Programs in containers, through the Docker SDK, which nothing outside this package imports.

executor.py   the verbs that every executor has
create.py     one container's whole configuration, and the protections in it
images.py     an image by name or digest: found, pulled within limits, its digest told
gangs.py      the network of a gang, joined right after the start
network.py    a network of a lease's own, for jobs that may reach the internet
logs.py       output from the engine into the lease's log
"""

from provider_agent.executors.docker.executor import DockerExecutor as DockerExecutor
