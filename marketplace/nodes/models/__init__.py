"""Supply, by subject: providers and their tokens, nodes with devices and offers, checks, links, metrics, releases."""

from marketplace.nodes.models.checks import Check
from marketplace.nodes.models.links import LINK_WHY_MAX, FabricLink, LinkProbe
from marketplace.nodes.models.metrics import SECONDS_PER_HOUR, SECONDS_PER_MINUTE, Metric
from marketplace.nodes.models.node import Device, Node, Offer
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
