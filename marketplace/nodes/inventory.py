"""What a node consists of, as its agent says, and how fast its devices were measured."""

from __future__ import annotations

import logging
import math
import re
from typing import Any, Final

from django.db import transaction

from marketplace.foundation import clock
from marketplace.nodes.errors import AlreadyEnrolled, BadFacts
from marketplace.nodes.models import Device, Node
from provider_agent.protocol import DeviceFacts, DeviceKind, DeviceMeasurement, MeasurementRequest, NodeFacts

logger = logging.getLogger(__name__)

DTYPES_MAX: Final = 16
DTYPE_PATTERN: Final = re.compile(r"[a-z0-9_]{1,24}")
FLOPS_PER_SECOND_MAX: Final = 1e18  # a device beyond this does not exist
MEMORY_BYTES_PER_SECOND_MAX: Final = 1e15


def add_devices(node: Node, devices: list[DeviceFacts]) -> list[Device]:
    """The devices of a node that is enrolling; a GPU that another node sells raises AlreadyEnrolled."""
    _refuse_repeated([device.uuid for device in devices])
    if sold := sorted(_sold_elsewhere(node, devices)):
        raise AlreadyEnrolled(what=f"GPU ({', '.join(sold)})", device_uuids=sold)
    return Device.objects.bulk_create([_device(node, device, is_healthy=True) for device in devices])


def update_facts(node: Node, facts: NodeFacts) -> Node:
    """The node's own account of itself, after a restart or a change; never more rentable than it was measured.

    A device that is gone is unhealthy; one that is new or has changed must be measured; a GPU that another node sells
    stays unhealthy here.
    """
    _refuse_repeated([device.uuid for device in facts.devices])
    fields = {
        "facts": facts_to_keep(facts),
        "executor": facts.executor,
        "agent_version": facts.agent_version,
        "memory_mib": facts.memory_mib,
        "cpu_count": facts.cpu_count,
    }
    with transaction.atomic():
        Node.objects.select_for_update().get(pk=node.pk)  # one account at a time
        Node.objects.filter(pk=node.pk).update(**fields)
        known = {device.uuid: device for device in node.devices.all()}
        sold = _sold_elsewhere(node, facts.devices)
        if sold:
            logger.warning("A node reported GPUs that another one sells.", extra={"node_id": str(node.pk)})
        present = {device.uuid for device in facts.devices}
        gone = [device.pk for uuid, device in known.items() if uuid not in present]
        Device.objects.filter(pk__in=gone).update(is_healthy=False)
        for device in facts.devices:
            _upsert(node, known.get(device.uuid), device, is_healthy=device.uuid not in sold)
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
            devices[uuid].flops_per_second = measurement.flops_per_second
            devices[uuid].memory_bytes_per_second = measurement.memory_bytes_per_second
        Device.objects.bulk_update(devices.values(), ["flops_per_second", "memory_bytes_per_second"])
        node.measured_at = clock.now()
        Node.objects.filter(pk=node.pk).update(measured_at=node.measured_at)
    return node


def facts_to_keep(facts: NodeFacts) -> dict[str, Any]:
    """What has no column of its own; raises BadFacts for text that the database cannot hold."""
    if "\\u0000" in facts.model_dump_json():
        raise BadFacts(problem="a text with a NUL character in it")
    columns = {"devices", "executor", "agent_version", "memory_mib", "cpu_count"}
    return facts.model_dump(mode="json", exclude=columns)


def _refuse_repeated(uuids: list[str]) -> None:
    if repeated := sorted({uuid for uuid in uuids if uuids.count(uuid) > 1}):
        raise BadFacts(problem=f"the same device twice: {', '.join(repeated)}")


def _sold_elsewhere(node: Node, devices: list[DeviceFacts]) -> set[str]:
    gpus = [device.uuid for device in devices if device.kind == DeviceKind.GPU]
    sold = Device.objects.filter(kind=DeviceKind.GPU.value, is_healthy=True, uuid__in=gpus).exclude(node_id=node.pk)
    return set(sold.values_list("uuid", flat=True))


def _device(node: Node, facts: DeviceFacts, *, is_healthy: bool) -> Device:
    return Device(
        node=node,
        uuid=facts.uuid,
        index=facts.index,
        kind=facts.kind.value,
        model=facts.model,
        memory_mib=facts.memory_mib,
        details=facts.details,
        is_healthy=is_healthy,
    )


def _upsert(node: Node, device: Device | None, facts: DeviceFacts, *, is_healthy: bool) -> None:
    if device is None:
        _device(node, facts, is_healthy=is_healthy).save(force_insert=True)
        return
    if (device.kind, device.model, device.memory_mib) != (facts.kind.value, facts.model, facts.memory_mib):
        device.flops_per_second, device.memory_bytes_per_second = {}, 0
    device.kind, device.model, device.memory_mib = facts.kind.value, facts.model, facts.memory_mib
    device.index, device.details, device.is_healthy = facts.index, facts.details, is_healthy
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
