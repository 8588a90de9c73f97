"""The tables of supply.

device_checks.py  device checks
devices.py        GPUs and CPU shares
links.py          links between nodes of a fabric, and the probes that measure them
metrics.py        time series of nodes and leases
node.py           enrolled machines
offers.py         the terms on which devices are rented
providers.py      providers and their enrolment tokens
releases.py       releases of the agent
"""

from marketplace.nodes.models.device_checks import Check
from marketplace.nodes.models.devices import Device
from marketplace.nodes.models.links import LINK_WHY_MAX, FabricLink, LinkProbe
from marketplace.nodes.models.metrics import SECONDS_PER_HOUR, SECONDS_PER_MINUTE, Metric
from marketplace.nodes.models.node import Node
from marketplace.nodes.models.offers import Offer
from marketplace.nodes.models.providers import EnrolmentToken, Provider
from marketplace.nodes.models.releases import AgentRelease

__all__ = [
    "LINK_WHY_MAX",
    "SECONDS_PER_HOUR",
    "SECONDS_PER_MINUTE",
    "AgentRelease",
    "Check",
    "Device",
    "EnrolmentToken",
    "FabricLink",
    "LinkProbe",
    "Metric",
    "Node",
    "Offer",
    "Provider",
]
