"""The `souk-agent` command: translate, call one verb, exit with the documented status."""

from __future__ import annotations

import asyncio
import os
import platform
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from provider_agent.commands import reports, update
from provider_agent.commands import settings as node_settings
from provider_agent.commands.options import DataOption, folder_of, guarded
from provider_agent.commands.service import app as service
from provider_agent.config import AgentConfig, AgentSettings, DataFolder, load_config
from provider_agent.errors import BadConfig
from provider_agent.facts import agent_version
from provider_agent.images import SERVE_IMAGE, TRAIN_IMAGE

USD_MICROS = 1_000_000

EXIT_CODES = """
Exit status: 0 done; 1 unexpected; 2 wrong usage or configuration; 3 not enrolled, or enrolled already; 4 refused by
the server; 5 server unreachable; 6 another agent uses this data folder; 7 the runtime environment cannot be built;
8 `doctor` found something to fix; 9 not listed in time, or not started;
10 an update was refused or rolled back; 11 a loop of the agent kept failing; 130 interrupted.
"""

app = typer.Typer(
    name="souk-agent",
    help="Rent out this computer's GPUs on a Souk marketplace.\n\n" + EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(service)


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
    executor: Annotated[str, typer.Option(help="docker, or process, which isolates nothing. No default.")],
    name: Annotated[str, typer.Option(help="Name of this node [default: this computer's name].")] = "",
    price: Annotated[float, typer.Option(help="US dollars per device and hour.")] = 1.0,
    region: Annotated[str, typer.Option(help="Where the node is, for example eu-west.")] = "unknown",
    seconds_min: Annotated[int, typer.Option(help="Shortest lease you accept.")] = 60,
    seconds_max: Annotated[int, typer.Option(help="Longest lease you accept.")] = 7 * 24 * 3600,
    allow_strangers: Annotated[
        bool,
        typer.Option(
            "--allow-strangers",
            help="With process: run programs of people you do not know, which can read what this user can.",
        ),
    ] = False,
    device_kind: Annotated[str, typer.Option(help="auto, gpu or cpu.")] = "auto",
    devices: Annotated[int, typer.Option(help="How many CPU shares to offer, where there is no GPU.")] = 1,
    cpu_cores: Annotated[str, typer.Option(help="Cores to pin CPU shares to, for example 0,1 [default: all].")] = "",
    fabric: Annotated[str, typer.Option(help="Label of nodes that reach each other by network.")] = "",
    fabric_address: Annotated[str, typer.Option(help="This node's IP address in the fabric.")] = "",
    fabric_privacy: Annotated[
        str, typer.Option(help="wireguard, or plain: quicker, and the fabric's other nodes can read it.")
    ] = "wireguard",
    runtime_python: Annotated[
        str, typer.Option(help="Interpreter that has torch, for the process executor [default: built at start].")
    ] = "",
    train_image: Annotated[str, typer.Option(help="Image that measures and trains, for docker.")] = TRAIN_IMAGE,
    serve_image: Annotated[str, typer.Option(help="Image that serves models, for docker.")] = SERVE_IMAGE,
    image_registry: Annotated[
        list[str] | None,
        typer.Option(help="HOST or HOST:PORT that jobs' images may come from; repeat it [default: the public ones]."),
    ] = None,
    engine_url: Annotated[str, typer.Option(help="Docker's address [default: DOCKER_HOST].")] = "",
    isolation: Annotated[str, typer.Option(help="auto (gVisor where the engine has it), runc or gvisor.")] = "auto",
    egress: Annotated[
        str, typer.Option(help="none, or public: jobs may ask for the internet, never for your network.")
    ] = "none",
    lend: Annotated[
        list[str] | None, typer.Option(help="LABEL=FOLDER: let jobs read a folder of yours; only the label is sent.")
    ] = None,
    cache_gib: Annotated[
        int, typer.Option(help="GiB for what jobs leave for later ones of the same customer; 0 keeps nothing.")
    ] = 16,
    benchmark_lock: Annotated[str, typer.Option(help="Lock file shared by all agents of this computer.")] = "",
    data: DataOption = None,
) -> None:
    """Make this computer a node of a marketplace. Run it once; then `souk-agent start`.

    Example: souk-agent enrol --server https://souk.example --token soukn_... --executor docker --price 1.20

    Example of a node for your own jobs: souk-agent enrol --server http://127.0.0.1:8000 --token T --executor process
    """

    def act() -> None:
        settings = _settings(
            name=name or platform.node(),
            offer={
                "price_usd_micros_per_device_hour": round(price * USD_MICROS),
                "seconds_min": seconds_min,
                "seconds_max": seconds_max,
                "region": region,
            },
            executor=executor,
            allow_strangers=allow_strangers,
            device_kind=device_kind,
            devices=devices,
            cpu_cores=_parse_cores(cpu_cores),
            fabric=fabric,
            fabric_address=fabric_address,
            fabric_privacy=fabric_privacy,
            runtime_python=str(Path(runtime_python).absolute()) if runtime_python else "",
            train_image=train_image,
            serve_image=serve_image,
            **({"image_registries": image_registry} if image_registry else {}),
            engine_url=engine_url,
            isolation=isolation,
            egress=egress,
            lend=_parse_lend(lend or []),
            cache_gib=cache_gib,
            benchmark_lock=benchmark_lock,
        )
        _enrol(folder_of(data), settings, server=server.rstrip("/"), token=token)

    guarded(act)


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
        from provider_agent.own_log import keep_log
        from provider_agent.resident import become_resident

        folder = folder_of(data)
        keep_log(folder)
        _prepare_runtime(folder, load_config(folder))
        become_resident(folder, stop_work_on_exit=stop_work_on_exit)

    guarded(act)


@app.command()
def retire(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data: DataOption = None,
) -> None:
    """Take this node out of the market for good. It can be enrolled anew with another token.

    Example: souk-agent retire --yes
    """

    def act() -> None:
        from provider_agent.node.enrolment import retire as retire_node

        folder = folder_of(data)
        config = load_config(folder)
        if not yes:
            typer.confirm(f"Retire {config.name} (node {config.node_id}) for good?", abort=True)
        asyncio.run(retire_node(folder))
        typer.echo(f"Retired {config.name}.")

    guarded(act)


def _enrol(folder: DataFolder, settings: AgentSettings, *, server: str, token: str) -> None:
    """Refuse what could not work before the token is spent; then enrol."""
    from provider_agent.executors.process import WARNING, warning_of_strangers
    from provider_agent.node.enrolment import enrol as enrol_node

    _refuse_sharing_our_data(settings, folder)
    _refuse_missing_interpreter(settings)
    if settings.executor == "process":
        typer.echo(f"{WARNING} {warning_of_strangers(settings.allow_strangers)}")
    elif settings.allow_strangers:
        raise BadConfig("--allow-strangers is for --executor process alone: containers take everybody's jobs.")
    config = asyncio.run(enrol_node(folder, settings, server=server, token=token))
    typer.echo(f"Enrolled as {config.name}, node {config.node_id}. Start it: souk-agent start --data {folder.root}")


def _prepare_runtime(folder: DataFolder, config: AgentConfig) -> None:
    """The process executor needs an interpreter that has torch; build it before the first beat."""
    if config.executor == "process" and not config.runtime_python:
        from provider_agent.process_venv import build_environment
        from provider_agent.system.agent_lock import hold_agent_lock

        folder.prepare()
        with hold_agent_lock(folder.lock):
            build_environment(folder, lambda line: typer.echo(line, err=True))


def _parse_cores(text: str) -> list[int]:
    try:
        return [int(core) for core in text.split(",") if core.strip()]
    except ValueError as error:
        raise BadConfig(f"--cpu-cores wants numbers separated by commas, not {text!r}.") from error


def _parse_lend(given: list[str]) -> dict[str, str]:
    """Labels with their folders, as they lie now: a link could share another folder later."""
    lend = {}
    for text in given:
        label, equals, path = text.partition("=")
        folder = Path(path).resolve()
        if not equals or not label or not folder.is_dir():
            raise BadConfig(f"--lend wants LABEL=FOLDER with a folder that is there, not {text!r}.")
        if label in lend:
            raise BadConfig(f"--lend names {label!r} twice.")
        lend[label] = str(folder)
    return lend


def _refuse_sharing_our_data(settings: AgentSettings, folder: DataFolder) -> None:
    """No job may read the folder that holds this node's keys."""
    own = folder.root.resolve()
    for label, path in settings.lend.items():
        if own.is_relative_to(path) or path.is_relative_to(own):
            raise BadConfig(
                f"--lend {label}={path} would share the agent's own data in {own}; choose a folder beside it."
            )


def _refuse_missing_interpreter(settings: AgentSettings) -> None:
    """Refuse it now: the benchmark would fail for ever, and only the log would show why."""
    python = settings.runtime_python
    if settings.executor == "process" and python and not os.access(python, os.X_OK):
        raise BadConfig(
            f"--runtime-python {python} is no program that can be run here; name an interpreter with torch."
        )


def _settings(**values: Any) -> AgentSettings:
    try:
        return AgentSettings.model_validate(values)
    except ValidationError as error:
        lines = [f"--{'-'.join(str(part) for part in e['loc'])}: {e['msg']}".replace("_", "-") for e in error.errors()]
        raise BadConfig("; ".join(lines)) from error


reports.register(app)
node_settings.register(app)
update.register(app)

if __name__ == "__main__":
    main()
