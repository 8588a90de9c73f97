"""offers, and provider: add-node, nodes, links."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.client.commands.options import Json, Server, open_public, open_souk
from jobs.client.errors import RemoteInstallFailed, SoukApiError, UsageMistake

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire import DeviceView

PANEL = "Market"

provider = typer.Typer(no_args_is_help=True, help="Rent out your own nodes.")


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command(rich_help_panel=PANEL)(offers)
    app.add_typer(provider, name="provider", rich_help_panel=PANEL)


def offers(server: Server = None, as_json: Json = False) -> None:
    """List what the market has, and what of it is busy now; needs no account.

    Examples: souk offers; souk offers --server https://souk.example --json
    """
    from rich.markup import escape

    from jobs.client.output import console, duration, money, print_json, size, table

    with open_public(server) as souk:
        found = souk.offers()
    if as_json:
        print_json(found)
        return
    if not found:
        console().print("Nothing is offered now. `souk provider add-node` adds a node of yours.", markup=False)
        return
    rows = [
        (
            escape(offer.node_name or f"of {offer.provider}"),
            escape(_devices(offer.devices)),
            f"{max(0, len(offer.devices) - offer.devices_busy)} of {len(offer.devices)}",
            size(min(device.memory_mib for device in offer.devices) * 2**20) if offer.devices else "-",
            money(offer.price_usd_micros_per_device_hour),
            _versions(offer.devices),
            f"{_flops_per_second(offer.devices) / 1e12:.4g}",
            escape(offer.region),
            offer.executor if offer.isolation != "gvisor" else "gvisor",
            duration(offer.seconds_max),
        )
        for offer in found
    ]
    columns = ("node", "devices", "free", "memory", "$/device-hour", "CUDA", "TFLOP/s", "region", "executor", "at most")
    console().print(table("", columns, rows, right=columns[2:7]))


@provider.command("add-node")
def add_node(  # noqa: PLR0917 - typer passes options by name
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- OPTIONS]", help="For install.sh: --price, --region, --executor and so on."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="Your name as customers see it, set the first time (default: your organisation's)."
        ),
    ] = None,
    ssh: Annotated[
        list[str] | None, typer.Option("--ssh", help="USER@HOST[:PORT] to install on, by SSH; may be repeated.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="SSH's port, where --ssh names none.")] = None,
    key: Annotated[Path | None, typer.Option(help="Private key (default: your agent's and ~/.ssh's).")] = None,
    jump: Annotated[str, typer.Option(help="USER@HOST[:PORT] to go through.")] = "",
    host_key: Annotated[
        list[str] | None, typer.Option(help="SHA256:... of a host key that you know; may be repeated.")
    ] = None,
    no_root: Annotated[bool, typer.Option("--no-root", help="Install for the SSH user alone, without sudo.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Make a token for one node and print its install command; or, with --ssh, run it there.

    The token works once, for an hour. Your SSH keys stay on this computer.

    Example: souk provider add-node

    Example: souk provider add-node --ssh bob@gpu1 --ssh bob@gpu2 -- --price 1.20 --region eu-west
    """
    with open_souk(server) as souk:
        try:
            souk.create_provider(name or souk.me().organisation.name)
        except SoukApiError as error:
            if error.status != 409:  # it is a provider already
                raise
        if ssh:
            connection = {"port": port, "key": key, "jump": jump, "as_root": not no_root, "host_keys": host_key or []}
            _add_by_ssh(souk, ssh, options or [], connection, as_json=as_json)
        elif options or port or key or jump or host_key or no_root:
            raise UsageMistake("These options go with --ssh; the printed install command takes install.sh's options.")
        else:
            _print_line(souk, as_json=as_json)


def _print_line(souk: Souk, *, as_json: bool) -> None:
    from jobs.client.output import console, print_json
    from provider_agent.protocol.install_command import install_command

    token = souk.issue_enrolment_token()
    command = install_command(souk.transport.server, token.token)
    if as_json:
        print_json({**token.model_dump(mode="json"), "command": command})
        return
    console().print(f"Run this on the node, before {token.expires_at:%Y-%m-%d %H:%M} UTC:\n", markup=False)
    console().print(f"  {command}", markup=False, soft_wrap=True)
    console().print("\nWith --dry-run behind it, it shows every step and changes nothing.", markup=False)


def _add_by_ssh(
    souk: Souk, places: list[str], options: list[str], connection: dict[str, Any], *, as_json: bool
) -> None:
    from jobs.client.output import console, print_json
    from jobs.client.remote import install_remotely
    from jobs.client.settings import settings_path

    found = install_remotely(
        places,
        server=souk.transport.server,
        token=lambda: souk.issue_enrolment_token().token,
        options=options,
        known_hosts=settings_path().with_name("known_hosts"),
        is_quiet=as_json,
        **connection,
    )
    if as_json:
        print_json(found)
    else:
        for one in found:
            console().print(f"{one['machine']}: {one['error'] or one['page'] or 'done'}", markup=False)
    failed = [one["machine"] for one in found if one["error"]]
    if failed:
        raise RemoteInstallFailed(f"{len(failed)} of {len(found)} machines did not become nodes: {', '.join(failed)}.")


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
    if not found:
        console().print("You have no nodes yet. `souk provider add-node` adds one.", markup=False)
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


@provider.command("links")
def links(server: Server = None, as_json: Json = False) -> None:
    """List the measured links between the nodes of your fabrics, each once.

    Example: souk provider links
    """
    from rich.markup import escape

    from jobs.client.output import ago, console, print_json, table

    with open_souk(server) as souk:
        found = [(node, link) for node in souk.nodes() for link in node.links if node.id < link.node_id]
    if as_json:
        print_json([{"fabric": node.fabric, "from": node.name, **link.model_dump(mode="json")} for node, link in found])
        return
    if not found:
        console().print("No link was measured: nodes of one --fabric are measured in pairs.", markup=False)
        return
    rows = [
        (
            escape(f"{node.name} - {link.node_name}"),
            escape(node.fabric),
            link.condition,
            "-" if link.round_trip_us is None else f"{link.round_trip_us / 1000:.3g} ms",
            _gigabits(link.bandwidth_bytes_per_second),
            ago(link.measured_at),
            escape(link.why),
        )
        for node, link in found
    ]
    columns = ("link", "fabric", "condition", "round trip", "Gbit/s", "measured", "what is wrong")
    console().print(table("", columns, rows, right=columns[3:5]))


def _gigabits(bytes_per_second: int | None) -> str:
    return "-" if bytes_per_second is None else f"{bytes_per_second * 8 / 1e9:.3g}"


def _devices(devices: list[DeviceView]) -> str:
    """2 x NVIDIA H100, 1 x CPU: equal ones together."""
    counts = Counter(device.model for device in devices)
    return ", ".join(f"{count} x {model}" for model, count in counts.items()) or "-"


def _versions(devices: list[DeviceView]) -> str:
    """12.4 (9.0): the CUDA that the driver supports, and the compute capability; - where nothing is known."""
    known = sorted({(device.cuda, device.compute_capability) for device in devices if device.cuda})
    return ", ".join(f"{cuda} ({capability or '?'})" for cuda, capability in known) or "-"


def _flops_per_second(devices: list[DeviceView]) -> float:
    """Of all devices together, each in the type that training uses there: bfloat16 on a GPU that has it."""
    best = (("bfloat16", "float32") if device.kind == "gpu" else ("float32",) for device in devices)
    return sum(
        next((device.flops_per_second[dtype] for dtype in dtypes if dtype in device.flops_per_second), 0.0)
        for device, dtypes in zip(devices, best, strict=True)
    )
