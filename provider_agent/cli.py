"""The `souk-agent` command: translate, call one verb, exit with the documented status."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError

from provider_agent.config import TRAIN_IMAGE, AgentConfig, AgentSettings, DataFolder, default_data_folder, load_config
from provider_agent.errors import AgentError, BadConfig, Fatal, decide
from provider_agent.facts import agent_version

EXIT_INTERRUPTED = 130
EXIT_NEEDS_FIXING = 8
USD_MICROS = 1_000_000

EXIT_CODES = """
Exit status: 0 done; 1 unexpected; 2 wrong usage or configuration; 3 not enrolled, or enrolled already; 4 refused by
the server; 5 server unreachable; 6 another agent uses this data folder; 7 the runtime environment cannot be built;
8 `doctor` found something to fix; 130 interrupted.
"""

app = typer.Typer(
    name="souk-agent",
    help="Rent out this computer's GPUs on a Souk marketplace.\n\n" + EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Data folder [default: /var/lib/souk-agent as root, else ~/.souk-agent]."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def main() -> None:
    """Entry point."""
    app()


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Options before the command."""
    if version:
        typer.echo(agent_version())
        raise typer.Exit


@app.command()
def enrol(  # noqa: PLR0917 - typer passes options by name
    server: Annotated[str, typer.Option(help="Address of the marketplace, as http(s)://NAME[:PORT].")],
    token: Annotated[
        str,
        typer.Option(envvar="SOUK_ENROL_TOKEN", help="Single-use; `souk provider add-node` prints one."),
    ],
    name: Annotated[str, typer.Option(help="Name of this node [default: this computer's name].")] = "",
    price: Annotated[float, typer.Option(help="US dollars per device and hour.")] = 1.0,
    region: Annotated[str, typer.Option(help="Where the node is, for example eu-west.")] = "unknown",
    seconds_min: Annotated[int, typer.Option(help="Shortest lease you accept.")] = 60,
    seconds_max: Annotated[int, typer.Option(help="Longest lease you accept.")] = 7 * 24 * 3600,
    executor: Annotated[str, typer.Option(help="process (isolates nothing) or docker.")] = "process",
    device_kind: Annotated[str, typer.Option(help="auto, gpu or cpu.")] = "auto",
    devices: Annotated[int, typer.Option(help="How many CPU shares to offer, where there is no GPU.")] = 1,
    cpu_cores: Annotated[str, typer.Option(help="Cores to pin CPU shares to, for example 0,1 [default: all].")] = "",
    fabric: Annotated[str, typer.Option(help="Label of nodes that reach each other by network.")] = "",
    fabric_address: Annotated[str, typer.Option(help="This node's IP address in the fabric.")] = "",
    runtime_python: Annotated[
        str, typer.Option(help="Interpreter that has torch, for the process executor [default: built at start].")
    ] = "",
    train_image: Annotated[str, typer.Option(help="Image of the built-in runtime, for docker.")] = TRAIN_IMAGE,
    engine_url: Annotated[str, typer.Option(help="Docker's address [default: DOCKER_HOST].")] = "",
    benchmark_lock: Annotated[str, typer.Option(help="Lock file shared by all agents of this computer.")] = "",
    data: DataOption = None,
) -> None:
    """Make this computer a node of a marketplace. Run it once; then `souk-agent start`.

    Example: souk-agent enrol --server https://souk.example --token souk_enrol_... --price 1.20 --region eu-west

    Example without a GPU: souk-agent enrol --server http://127.0.0.1:8000 --token T --devices 2 --cpu-cores 0,1
    """

    def act() -> None:
        from provider_agent.enrolment import enrol as enrol_node

        settings = _settings(
            name=name or platform.node(),
            offer={
                "price_usd_micros_per_device_hour": round(price * USD_MICROS),
                "seconds_min": seconds_min,
                "seconds_max": seconds_max,
                "region": region,
            },
            executor=executor,
            device_kind=device_kind,
            devices=devices,
            cpu_cores=_parse_cores(cpu_cores),
            fabric=fabric,
            fabric_address=fabric_address,
            runtime_python=str(Path(runtime_python).absolute()) if runtime_python else "",
            train_image=train_image,
            engine_url=engine_url,
            benchmark_lock=benchmark_lock,
        )
        folder = _folder(data)
        config = asyncio.run(enrol_node(folder, settings, server=server.rstrip("/"), token=token))
        typer.echo(f"Enrolled as {config.name}, node {config.node_id}. Start it: souk-agent start --data {folder.root}")

    _guarded(act)


@app.command()
def start(
    stop_work_on_exit: Annotated[
        bool, typer.Option(help="End running programs when the agent ends; by default they go on and are adopted.")
    ] = False,
    data: DataOption = None,
) -> None:
    """Run the agent in the foreground until Ctrl-C or SIGTERM. Programs go on; the next start adopts them.

    Example: souk-agent start

    Example: SOUK_TORCH_INDEX=https://download.example/cpu souk-agent start --data /srv/souk-agent
    """

    def act() -> None:
        from provider_agent.daemon import run_daemon

        folder = _folder(data)
        _prepare_runtime(folder, load_config(folder))
        asyncio.run(run_daemon(folder, stop_work_on_exit=stop_work_on_exit))

    _guarded(act)


@app.command()
def status(as_json: JsonOption = False, data: DataOption = None) -> None:
    """Show this node, its contact with the server and its leases.

    Example: souk-agent status --json
    """

    def act() -> None:
        from provider_agent.status import read_status

        found = read_status(_folder(data))
        if as_json:
            typer.echo(json.dumps(found, indent=2))
            return
        state = f"running (pid {found['pid']})" if found["running"] else "not running"
        typer.echo(f"{found['name']}  node {found['node_id']}  of {found['server']}")
        typer.echo(f"agent: {state}; node: {found['node_state']}; executor: {found['executor']}")
        if found["last_contact"].get("last_error"):
            typer.echo(f"last error: {found['last_contact']['last_error']}")
        for lease in found["leases"]:
            reason = f" ({lease['reason']})" if lease["reason"] else ""
            seconds = lease["billable_ms"] / 1000
            typer.echo(f"lease {lease['lease_id']}  {lease['state']}{reason}  {lease['job_name']}  {seconds:.1f} s")

    _guarded(act)


@app.command()
def doctor(as_json: JsonOption = False, data: DataOption = None) -> None:
    """Check everything that this node needs; each FIX line names the command that fixes it.

    Example: souk-agent doctor || echo "see the FIX lines"
    """

    def act() -> None:
        from provider_agent.doctor import examine

        findings = asyncio.run(examine(_folder(data)))
        if as_json:
            typer.echo(json.dumps([finding.as_dict() for finding in findings], indent=2))
        else:
            for finding in findings:
                fix = f"\n      fix: {finding.fix}" if finding.fix else ""
                typer.echo(f"{finding.verdict:4}  {finding.check}: {finding.found}{fix}")
        if any(finding.verdict == "FIX" for finding in findings):
            raise typer.Exit(EXIT_NEEDS_FIXING)

    _guarded(act)


@app.command()
def retire(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data: DataOption = None,
) -> None:
    """Take this node out of the market for good. It can be enrolled anew with another token.

    Example: souk-agent retire --yes
    """

    def act() -> None:
        from provider_agent.enrolment import retire as retire_node

        folder = _folder(data)
        config = load_config(folder)
        if not yes:
            typer.confirm(f"Retire {config.name} (node {config.node_id}) for good?", abort=True)
        asyncio.run(retire_node(folder))
        typer.echo(f"Retired {config.name}.")

    _guarded(act)


def _prepare_runtime(folder: DataFolder, config: AgentConfig) -> None:
    """The process executor needs an interpreter that has torch; build it before the first beat."""
    if config.executor == "process" and not config.runtime_python:
        from provider_agent.daemon import only_agent
        from provider_agent.runtime_environment import build_environment

        with only_agent(folder):
            build_environment(folder, lambda line: typer.echo(line, err=True))


def _guarded(act: Callable[[], None]) -> None:
    """Run one command; an AgentError is one clear line and its exit status, never a traceback."""
    logging.basicConfig(
        level=os.environ.get("SOUK_AGENT_LOG", "INFO").upper(),
        format="%(asctime)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        act()
    except AgentError as error:
        _fail(error)
    except OSError as error:
        _fail(Fatal(f"{error.strerror}: {error.filename}" if error.filename else str(decide(error))))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _fail(error: AgentError) -> NoReturn:
    typer.echo(f"souk-agent: {error}", err=True)
    raise typer.Exit(error.exit_code)


def _folder(data: Path | None) -> DataFolder:
    return DataFolder(data.absolute()) if data is not None else default_data_folder()


def _parse_cores(text: str) -> list[int]:
    try:
        return [int(core) for core in text.split(",") if core.strip()]
    except ValueError as error:
        raise BadConfig(f"--cpu-cores wants numbers separated by commas, not {text!r}.") from error


def _settings(**values: Any) -> AgentSettings:
    try:
        return AgentSettings.model_validate(values)
    except ValidationError as error:
        lines = [f"--{'-'.join(str(part) for part in e['loc'])}: {e['msg']}".replace("_", "-") for e in error.errors()]
        raise BadConfig("; ".join(lines)) from error


if __name__ == "__main__":
    main()
