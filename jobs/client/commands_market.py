"""offers, and provider: add-node, nodes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.client.errors import SoukApiError
from jobs.client.options import Json, Server, open_souk

if TYPE_CHECKING:
    from jobs.wire import DeviceView

PANEL = "Market"

provider = typer.Typer(no_args_is_help=True, help="Rent out your own nodes.")


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command(rich_help_panel=PANEL)(offers)
    app.add_typer(provider, name="provider", rich_help_panel=PANEL)


def offers(server: Server = None, as_json: Json = False) -> None:
    """List what can be rented now.

    Example: souk offers
    """
    from rich.markup import escape

    from jobs.client.output import console, duration, money, print_json, size, table

    with open_souk(server) as souk:
        found = souk.offers()
    if as_json:
        print_json(found)
        return
    rows = [
        (
            escape(offer.node_name),
            escape(_devices(offer.devices)),
            size(min(device.memory_mib for device in offer.devices) * 2**20) if offer.devices else "-",
            money(offer.price_usd_micros_per_device_hour),
            f"{_flops_per_second(offer.devices) / 1e12:.4g}",
            escape(offer.region),
            offer.executor,
            duration(offer.seconds_max),
        )
        for offer in found
    ]
    columns = ("node", "devices", "memory", "$/device-hour", "TFLOP/s", "region", "executor", "at most")
    console().print(table("", columns, rows, right=columns[2:5]))


@provider.command("add-node")
def add_node(
    name: Annotated[
        str | None, typer.Option("--name", help="What customers see; the first time, else your organisation's name.")
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Make a token for one node and print the line to run there. It works once, for an hour.

    Example: souk provider add-node
    """
    from jobs.client.output import console, print_json

    with open_souk(server) as souk:
        try:
            souk.create_provider(name or souk.me().organisation.name)
        except SoukApiError as error:
            if error.status != 409:  # it is a provider already
                raise
        token = souk.issue_enrolment_token()
        command = f"souk-agent enrol --server {souk.transport.server} --token {token.token}"
    if as_json:
        print_json({**token.model_dump(mode="json"), "command": command})
        return
    console().print(f"Run this on the node, before {token.expires_at:%Y-%m-%d %H:%M} UTC:\n", markup=False)
    console().print(f"  {command}", markup=False, soft_wrap=True)


@provider.command("nodes")
def nodes(server: Server = None, as_json: Json = False) -> None:
    """List your nodes.

    Example: souk provider nodes
    """
    from rich.markup import escape

    from jobs.client.output import ago, console, money, print_json, table

    with open_souk(server) as souk:
        try:
            found = souk.nodes()
        except SoukApiError as error:
            if error.code == "no_provider":
                error.message = "You do not rent out anything yet. `souk provider add-node` begins it."
            raise
    if as_json:
        print_json(found)
        return
    rows = [
        (
            escape(node.name),
            node.state,
            escape(_devices(node.devices)),
            money(node.offer.price_usd_micros_per_device_hour if node.offer else None),
            node.executor,
            ago(node.last_seen_at),
        )
        for node in found
    ]
    console().print(table("", ("node", "state", "devices", "$/device-hour", "executor", "seen"), rows))


def _devices(devices: list[DeviceView]) -> str:
    """2 x NVIDIA H100, 1 x CPU: equal ones together."""
    counts = Counter(device.model for device in devices)
    return ", ".join(f"{count} x {model}" for model, count in counts.items()) or "-"


def _flops_per_second(devices: list[DeviceView]) -> float:
    """Of all devices together, each in the type that training uses there: bfloat16 on a GPU that has it."""
    best = (("bfloat16", "float32") if device.kind == "gpu" else ("float32",) for device in devices)
    return sum(
        next((device.flops_per_second[dtype] for dtype in dtypes if dtype in device.flops_per_second), 0.0)
        for device, dtypes in zip(devices, best, strict=True)
    )
