"""Why not: the exclusions of a fleet, counted and as text."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.matching.demand import Demand
from jobs.matching.exclusion_reasons import Why
from jobs.spec.units import format_money, format_version
from jobs.wire import Exclusion

SHOWN_MAX = 4  # reasons in one line

MESSAGES: dict[Why, str] = {
    Why.PENDING: "{n} not measured since they enrolled",
    Why.SILENT: "{n} missed their last heartbeats",
    Why.OFFLINE: "{n} offline",
    Why.DRAINING: "{n} draining",
    Why.QUARANTINED: "{n} in quarantine",
    Why.SUSPENDED: "{n} suspended until they pass a check",
    Why.CLOSED: "{n} closed at this hour",
    Why.UNMEASURED: "{n} not measured yet",
    Why.NO_OFFER: "{n} without an open offer",
    Why.KIND: "{n} without a {kind}",
    Why.MODEL: "{n} without {models}",
    Why.MEMORY: "{n} lack {memory} of memory per device",
    Why.COMPUTE_CAPABILITY: "{n} below compute capability {compute_capability}, or with an agent that does not say",
    Why.CUDA: "{n} whose driver does not support CUDA {cuda}, or whose agent does not say what it does",
    Why.DTYPE: "{n} cannot compute in {dtype}, or were not measured in it",
    Why.GPUS: "{n} have fewer than {devices} such devices",
    Why.CPUS: "{n} have fewer than {cpus} cores for {devices} of their devices",
    Why.RAM: "{n} have less than {ram} of memory for {devices} of their devices",
    Why.DISK: "{n} have less than {disk} of free disk for {devices} of their devices",
    Why.SHM: "{n} have less than {shm} of /dev/shm for {devices} of their devices, or an agent that does not say",
    Why.EXECUTOR: "{n} cannot run a container image",
    Why.ISOLATION: "{n} do not isolate by {isolations}",
    Why.OWN_JOBS: "{n} isolate nothing and take jobs of their own organisation only",
    Why.EGRESS: "{n} give programs no network",
    Why.LENT: "{n} do not lend {lent}",
    Why.OLD_AGENT: "{n} whose agent is too old to be paid in tokens",
    Why.NO_SERVING: "{n} whose agent is too old to serve",
    Why.OLD_RUNTIME: "{n} whose agent is too old for {features}",
    Why.WALLET: "{n} whose provider has no wallet for {token} that the contract knows",
    Why.NOT_ALLOWED: "{n} whose provider your wallet did not allow when it signed",
    Why.REGION: "{n} outside {regions}",
    Why.PRICE: "{n} above your price of ${ceiling} per device and hour",
    Why.TOO_SHORT: "{n} rent for longer than ${cap} can pay",
    Why.FABRIC: "{n} not among {nodes} that reach each other",
    Why.LINK: "{n} declared one fabric, but do not reach each other: their provider sees which links fail",
    Why.UNPROBED: "{n} declared one fabric whose links are not measured yet",
    Why.TOO_LONG: "{n} would take longer than their offer lasts",
    Why.WINDOW: "{n} close before the job could be done",
    Why.DEADLINE: "{n} too slow for your deadline",
    Why.COST: "{n} expected to cost more than ${cap} in all",
    Why.BUSY: "{n} busy",
    Why.RESERVED: "{n} kept for an older job that waits for them",
}


def exclusions_of(demand: Demand, excluded: Mapping[Why, int]) -> list[Exclusion]:
    """The reasons with how many nodes each excludes, most first; their counts add up to the nodes excluded."""
    return [
        Exclusion(code=why.value, nodes=nodes, message=_message(why, nodes, demand))
        for why, nodes in sorted(excluded.items(), key=lambda item: (-item[1], item[0]))
        if nodes
    ]


def waiting_message(exclusions: list[Exclusion], *, nodes: int) -> str:
    """One line for a job that waits: "0 of 412 nodes: 300 lack 48 GiB of memory per device, 90 busy"."""
    if not exclusions:
        return f"0 of {nodes} nodes"
    shown = [exclusion.message for exclusion in exclusions[:SHOWN_MAX]]
    rest = sum(exclusion.nodes for exclusion in exclusions[SHOWN_MAX:])
    return f"0 of {nodes} nodes: " + ", ".join(shown) + (f", {rest} for other reasons" if rest else "")


def format_memory(mib: int) -> str:
    """Whole GiB where it is, else MiB, as a job file may have it."""
    return f"{mib // 1024}GiB" if mib and mib % 1024 == 0 else f"{mib}MiB"


def _message(why: Why, nodes: int, demand: Demand) -> str:
    return MESSAGES[why].format(
        n=nodes,
        kind={"gpu": "GPU", "cpu": "CPU share"}.get(demand.kind or "", "device"),
        models=" or ".join(demand.models) or "such a device",
        memory=format_memory(max(demand.memory_mib, demand.memory_floor_mib)),
        compute_capability=format_version(demand.compute_capability),
        cuda=format_version(demand.cuda),
        cpus=demand.cpus,
        ram=format_memory(demand.ram_mib),
        disk=format_memory(demand.disk_mib),
        shm=format_memory(demand.shm_mib),
        dtype=demand.dtype if demand.dtype != "auto" else "float32",
        devices=demand.devices,
        isolations=" or ".join(demand.isolations),
        token=demand.wallet_for,
        features=" and ".join(sorted(demand.runtime_features)),
        lent=" and ".join(sorted(demand.lent)),
        regions=" and ".join(demand.regions),
        ceiling=format_money(demand.price_ceiling_usd_micros or 0),
        cap=format_money(demand.cap_usd_micros or 0),
        nodes=demand.nodes,
    )
