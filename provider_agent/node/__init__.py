"""The node as a whole: joining the market, what it measures of itself, what it can do, its status.

enrolment.py          makes this computer a node, and retires it
listing.py            waits until the marketplace lists this node
desired_settings.py   drain, resume, price, schedule, as signed requests
hours.py              weekly hours as people write them
status.py             what an agent is doing, read from its files
doctor.py             checks everything that a node needs, each with the command that fixes it
abilities.py          the doctor's checks of disks, egress, fabric, gangs and serving
ability_to_serve.py   looks again and again whether models can be served here
self_test.py          tests the node after programs failed in a row
self_test_result.py   the result of the last self-test, as it is kept
health.py             load figures, and devices that fail
benchmark.py          measures the devices with runtimes.probe
device_checks.py      answers the marketplace's device checks
own_programs.py       programs that the agent runs for itself, and ends whole
speeds.py             speed of the disk and of the connection to the marketplace
links.py              answers the marketplace's demands to probe a link to another node
fabric_probe.py       probes one link: reachable both ways, round trip, bandwidth
fabric_wire.py        what is sent on a probe's connection
"""
