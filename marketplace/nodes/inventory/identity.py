"""One card is sold once: it is identified by its UUID, and by its serial number if it has one.

A card with a fault, or that fell off the bus, stays its node's. Its provider alone may enrol it in another node, once
it is not in the first one any more; anybody may when that node is retired.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from django.db.models import Q

from marketplace.nodes.errors import BadFacts
from marketplace.nodes.models import Device, Node
from provider_agent.protocol import DeviceFacts, DeviceKind

GONE: Final = "not in the machine any more"
NO_SERIAL: Final = frozenset({None, "", "0", "N/A"})


def sold_elsewhere(node: Node, devices: list[DeviceFacts]) -> set[str]:
    """UUIDs of those GPUs that are another node's, under the same UUID or with the same serial number of the card."""
    gpus = [device for device in devices if device.kind == DeviceKind.GPU]
    serials = {device.uuid: serial for device in gpus if (serial := device.details.get("serial")) not in NO_SERIAL}
    is_same = Q(uuid__in=[device.uuid for device in gpus]) | Q(details__serial__in=list(serials.values()))
    others = Device.objects.filter(is_same, kind=DeviceKind.GPU.value, is_claimed=True).exclude(node_id=node.pk)
    moved = Q(node__provider_id=node.provider_id, fault=GONE)
    others.filter(moved).update(is_claimed=False)
    known = list(others.values_list("uuid", "model", "details__serial"))
    uuids, boards = {uuid for uuid, _, _ in known}, {(model, serial) for _, model, serial in known}
    return {
        device.uuid for device in gpus if device.uuid in uuids or (device.model, serials.get(device.uuid)) in boards
    }


def refuse_shared_places(devices: list[DeviceFacts]) -> None:
    """Raise BadFacts for two GPUs at one place of the bus: one card with two names."""
    places = Counter(place for device in devices if (place := device.details.get("pci_bus_id")))
    if shared := sorted(str(place) for place, count in places.items() if count > 1):
        raise BadFacts(problem=f"two GPUs at one place of the bus: {', '.join(shared)}")
