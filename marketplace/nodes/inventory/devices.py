"""What a node consists of, as its agent reports, and how fast its devices were measured."""

from __future__ import annotations

import logging
import math
import re
from typing import Any, Final

from django.conf import settings
from django.db import transaction

from marketplace.foundation import clock
from marketplace.nodes.device_challenges import calibration
from marketplace.nodes.errors import AlreadyEnrolled, BadFacts
from marketplace.nodes.inventory import identity
from marketplace.nodes.models import Device, Node
from marketplace.nodes.states import NodeState
from provider_agent.protocol import DeviceFacts, DeviceMeasurement, MeasurementRequest, NodeFacts

logger = logging.getLogger(__name__)

DTYPES_MAX: Final = 16
DTYPE_PATTERN: Final = re.compile(r"[a-z0-9_]{1,24}")
_SPEEDS: Final = [
    "claimed_flops_per_second",
    "shown_flops_per_second",
    "flops_per_second",
    "memory_bytes_per_second",
]
FLOPS_PER_SECOND_MAX: Final = 1e18  # a device beyond this does not exist
MEMORY_BYTES_PER_SECOND_MAX: Final = 1e15
SOLD: Final = "another node sells it"


def add_devices(node: Node, devices: list[DeviceFacts]) -> list[Device]:
    """The devices of a node that is enrolling; a GPU that another node sells raises AlreadyEnrolled."""
    _refuse_repeated([device.uuid for device in devices])
    if sold := sorted(_sold_elsewhere(node, devices)):
        raise AlreadyEnrolled(what=f"GPU ({', '.join(sold)})", device_uuids=sold)
    return Device.objects.bulk_create([_device(node, device, fault=device.fault) for device in devices])


def update_facts(node: Node, facts: NodeFacts) -> Node:
    """What a node reports of itself after a restart or a change; its devices are never more rentable than measured.

    A device that is missing or has a fault is unhealthy, and stays this node's; one that is new or has changed must be
    measured; a GPU that another node sells stays unhealthy here.
    """
    _refuse_repeated([device.uuid for device in facts.devices])
    fields = {
        "facts": facts_to_keep(facts),
        "executor": facts.executor,
        "allows_strangers": facts.allows_strangers,
        "agent_version": facts.agent_version,
        "memory_mib": facts.memory_mib,
        "cpu_count": facts.cpu_count,
        "fabric_key": facts.fabric_key,
        **_update_fields(node, facts),
    }
    with transaction.atomic():
        locked = Node.objects.select_for_update().get(pk=node.pk)  # one report at a time
        if locked.state == NodeState.RETIRED:
            return node  # signed before a process knew of it: it would claim its cards again, for nobody
        Node.objects.filter(pk=node.pk).update(**fields)
        known = {device.uuid: device for device in node.devices.all()}
        sold = _sold_elsewhere(node, facts.devices)
        if sold:
            logger.warning("A node reported GPUs that another one sells.", extra={"node_id": str(node.pk)})
        present = {device.uuid for device in facts.devices}
        gone = [device.pk for uuid, device in known.items() if uuid not in present]
        Device.objects.filter(pk__in=gone).update(is_healthy=False, fault=identity.GONE)
        for device in facts.devices:
            _upsert(node, known.get(device.uuid), device, fault=device.fault or (SOLD if device.uuid in sold else ""))
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def record_measurements(node: Node, request: MeasurementRequest) -> Node:
    """What the probe measured on every healthy device of the node; from now on its offer can be rented."""
    _refuse_repeated([device.uuid for device in request.devices])
    measured = {device.uuid: _checked(device) for device in request.devices}
    with transaction.atomic():
        devices = {device.uuid: device for device in node.devices.select_for_update()}
        if unknown := sorted(set(measured) - set(devices)):
            raise BadFacts(problem=f"measured devices that the node does not have: {', '.join(unknown)}")
        if missing := sorted(uuid for uuid, device in devices.items() if device.is_healthy and uuid not in measured):
            raise BadFacts(problem=f"not measured: {', '.join(missing)}")
        for uuid, measurement in measured.items():
            device = devices[uuid]
            device.claimed_flops_per_second = measurement.flops_per_second
            device.flops_per_second = believed_flops(device)
            device.memory_bytes_per_second = measurement.memory_bytes_per_second
        Device.objects.bulk_update(devices.values(), _SPEEDS)
        fields: dict[str, Any] = {"measured_at": clock.now(), "next_check_at": clock.now()}  # a check on joining
        if settings.SOUK_VERIFICATION == "enforce" and node.verified_at is None:
            fields["suspended_at"] = clock.now()  # until it has passed its first one
        Node.objects.filter(pk=node.pk).update(**fields)
        for name, value in fields.items():
            setattr(node, name, value)
    return node


def record_shown(node: Node, shown_flops_per_second: dict[str, float]) -> None:
    """What a passed check showed of each device: from now on matching and prices go by no more than that."""
    devices = {device.uuid: device for device in node.devices.select_for_update()}
    for uuid in shown_flops_per_second.keys() & devices.keys():
        device = devices[uuid]
        device.claimed_flops_per_second = device.claimed_flops_per_second or device.flops_per_second
        device.shown_flops_per_second = calibration.figure_from(device, shown_flops_per_second[uuid])
        device.flops_per_second = believed_flops(device)
    Device.objects.bulk_update(devices.values(), _SPEEDS)


def believed_flops(device: Device) -> dict[str, float]:
    """The claim as far as it was shown: where the chain reached a part of the claimed figure, that part of every one.

    A check computes in float32; of other types it shows nothing: a device that is slower in float32 than it claims is
    assumed to be slower in all.
    """
    claimed, shown = device.claimed_flops_per_second, device.shown_flops_per_second
    if not claimed or shown is None:
        return dict(claimed)
    measured = claimed.get(calibration.DTYPE) or min(claimed.values())
    share = min(shown / measured, 1.0)
    return {dtype: value * share for dtype, value in claimed.items()}


def facts_to_keep(facts: NodeFacts) -> dict[str, Any]:
    """What has no column of its own; raises BadFacts for text that the database cannot hold."""
    if "\\u0000" in facts.model_dump_json():
        raise BadFacts(problem="a text with a NUL character in it")
    columns = {"devices", "executor", "allows_strangers", "agent_version"}
    columns |= {"memory_mib", "cpu_count", "fabric_key", "updates"}
    return facts.model_dump(mode="json", exclude=columns)


def _update_fields(node: Node, facts: NodeFacts) -> dict[str, Any]:
    """Since when it has its version, whether it updates itself, and which version it rolled back."""
    rollback = facts.updates.rolled_back
    fields: dict[str, Any] = {
        "update_mode": facts.updates.mode,
        "rolled_back_version": rollback.version if rollback else "",
        "rolled_back_reason": rollback.reason if rollback else "",
        "rolled_back_at": rollback.at if rollback else None,
    }
    if facts.agent_version != node.agent_version:
        fields["agent_version_at"] = clock.now()
    return fields


def _refuse_repeated(uuids: list[str]) -> None:
    if repeated := sorted({uuid for uuid in uuids if uuids.count(uuid) > 1}):
        raise BadFacts(problem=f"the same device twice: {', '.join(repeated)}")


def _sold_elsewhere(node: Node, devices: list[DeviceFacts]) -> set[str]:
    identity.refuse_shared_places(devices)
    return identity.sold_elsewhere(node, devices)


def _device(node: Node, facts: DeviceFacts, *, fault: str) -> Device:
    return Device(
        node=node,
        uuid=facts.uuid,
        index=facts.index,
        kind=facts.kind.value,
        model=facts.model,
        memory_mib=facts.memory_mib,
        details=facts.details,
        is_healthy=not fault,
        is_claimed=not fault,  # what was never seen to work here is claimed by nobody
        fault=fault,
    )


def _upsert(node: Node, device: Device | None, facts: DeviceFacts, *, fault: str) -> None:
    if device is None:
        _device(node, facts, fault=fault).save(force_insert=True)
        return
    if (device.kind, device.model, device.memory_mib) != (facts.kind.value, facts.model, facts.memory_mib):
        device.flops_per_second, device.memory_bytes_per_second = {}, 0
        device.claimed_flops_per_second, device.shown_flops_per_second = {}, None
    device.kind, device.model, device.memory_mib = facts.kind.value, facts.model, facts.memory_mib
    device.index, device.details, device.is_healthy, device.fault = facts.index, facts.details, not fault, fault
    device.is_claimed = not fault or (device.is_claimed and fault != SOLD)
    device.save()


def _checked(device: DeviceMeasurement) -> DeviceMeasurement:
    flops = device.flops_per_second
    if not 0 < len(flops) <= DTYPES_MAX or not all(DTYPE_PATTERN.fullmatch(dtype) for dtype in flops):
        raise BadFacts(problem=f"the dtypes measured on {device.uuid}")
    if not all(math.isfinite(value) and 0 < value <= FLOPS_PER_SECOND_MAX for value in flops.values()):
        raise BadFacts(problem=f"the FLOP/s measured on {device.uuid}")
    if not 0 <= device.memory_bytes_per_second <= MEMORY_BYTES_PER_SECOND_MAX:
        raise BadFacts(problem=f"the memory bandwidth measured on {device.uuid}")
    return device
