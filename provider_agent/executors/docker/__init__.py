"""Programs in containers, through the Docker SDK, which nothing outside this package imports.

executor.py   the verbs that every executor has
containers.py the leases' containers: found, polled, signalled, removed
create.py     one container's whole configuration, and the protections in it
images.py     an image by name or digest: found, pulled within limits, returned with its digest
registries.py from where a customer's image may come
manifests.py  whether it names addresses of its own, where the engine would ask them
seccomp.py    the system calls that a container may make
gangs.py      the network of a gang, joined right after the start
network.py    a network of a lease's own, for jobs that may reach the internet
logs.py       output from the engine into the lease's log
exits.py      what the engine reports about an ended container, as an Exit
absence.py    whether a container ended because its engine did
"""

from provider_agent.executors.docker.executor import DockerExecutor as DockerExecutor
