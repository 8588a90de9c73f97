"""offers, and provider: add-node, nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.client.errors import SoukApiError
from jobs.client.options import Json, Server, open_souk

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
            f"{offer.devices} x {escape(offer.device_model)}",
            "-" if offer.devices_free is None else str(offer.devices_free),
            size(offer.memory_mib * 2**20),
            money(offer.price_usd_micros_per_device_hour),
            f"{max(offer.flops_per_second.values(), default=0) / 1e12:.4g}",
            escape(offer.region),
            offer.executor,
            duration(offer.seconds_max),
        )
        for offer in found
    ]
    columns = ("node", "devices", "free", "memory", "$/device-hour", "TFLOP/s", "region", "executor", "at most")
    console().print(table("", columns, rows, right=columns[2:6]))


@provider.command("add-node")
def add_node(
    name: Annotated[str | None, typer.Option("--name", help="The provider's name, the first time.")] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Make a token for one node and print the line to run there. It works once, for an hour.

    Example: souk provider add-node
    """
    from jobs.client.output import console, print_json

    with open_souk(server) as souk:
        try:
            souk.create_provider(name)
        except SoukApiError as error:
            if error.status != 409:  # it is a provider already
                raise
        token = souk.issue_enrolment_token()
    if as_json:
        print_json(token)
        return
    console().print(f"Run this on the node, before {token.expires_at:%Y-%m-%d %H:%M} UTC:\n", markup=False)
    console().print(f"  {token.command}", markup=False, soft_wrap=True)


@provider.command("nodes")
def nodes(server: Server = None, as_json: Json = False) -> None:
    """List your nodes.

    Example: souk provider nodes
    """
    from rich.markup import escape

    from jobs.client.output import ago, console, money, print_json, table

    with open_souk(server) as souk:
        found = souk.nodes()
    if as_json:
        print_json(found)
        return
    rows = [
        (
            escape(node.name),
            node.state,
            f"{node.devices} x {escape(node.device_model)}",
            money(node.price_usd_micros_per_device_hour),
            node.executor,
            ago(node.last_seen_at),
        )
        for node in found
    ]
    console().print(table("", ("node", "state", "devices", "$/device-hour", "executor", "seen"), rows))
