"""endpoints, endpoint, deploy, take-back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jobs.client.errors import UsageMistake
from jobs.client.options import JobFilePath, Json, Server, Yes, ask, open_souk

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire import EndpointView

PANEL = "Serving"
EndpointName = Annotated[
    str,
    typer.Argument(metavar="ENDPOINT", help="The model's name, or the endpoint's or its job's id.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    for command in (endpoints, endpoint, deploy, take_back):
        app.command(rich_help_panel=PANEL)(command)


def endpoints(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those that are closed, too.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List what you serve: models, addresses, replicas, prices.

    Example: souk endpoints
    """
    from jobs.client.endpoint_view import endpoints_view
    from jobs.client.output import console, print_json

    with open_souk(server) as souk:
        found = [each for each in souk.endpoints() if everything or each.state != "closed"]
    if as_json:
        print_json(found)
    elif found:
        console().print(endpoints_view(found))
    else:
        console().print("Nothing is served. `souk launch FILE` with a job file of kind: serve begins it.")


def endpoint(name: EndpointName, server: Server = None, as_json: Json = False) -> None:
    """Show an endpoint: how to call it, its versions, and each replica.

    Example: souk endpoint my-llm
    """
    from jobs.client.endpoint_view import endpoint_view
    from jobs.client.output import console, print_json

    with open_souk(server) as souk:
        found = find_endpoint(souk, name)
    if as_json:
        print_json(found)
    else:
        console().print(endpoint_view(found))


def deploy(file: JobFilePath, yes: Yes = False, server: Server = None, as_json: Json = False) -> None:
    """Serve something else under the same name: the new version takes over without a pause, as `rollout` says.

    The endpoint is the open one that the file's model name belongs to. `souk cancel` ends an endpoint.

    Example: souk deploy serve.yaml --yes
    """
    from jobs.client.endpoint_view import endpoint_view
    from jobs.client.launch import prepare
    from jobs.client.output import console, print_json
    from jobs.client.upload import upload_files

    job_file = prepare(file)
    serve = job_file.spec.serve
    if serve is None:
        raise UsageMistake("This job file trains; only one of kind: serve can be deployed. `souk launch` submits it.")
    with open_souk(server) as souk:
        found = find_endpoint(souk, serve.served_as or job_file.spec.name)
        if not yes and not ask(f"Deploy version {len(found.versions) + 1} of {found.model}?", as_json=as_json):
            raise typer.Exit(0)
        input_id = upload_files(souk, job_file.files, on_bytes=lambda _: None) if job_file.files else None
        deployed = souk.deploy(found.endpoint_id, job_file.spec, input_artifact_id=input_id)
    if as_json:
        print_json(deployed)
    else:
        console().print(endpoint_view(deployed))


def take_back(name: EndpointName, yes: Yes = False, server: Server = None, as_json: Json = False) -> None:
    """Let the version before the newest answer again: at once, while its replicas are still there.

    Example: souk take-back my-llm --yes
    """
    from jobs.client.endpoint_view import endpoint_view
    from jobs.client.output import console, print_json

    with open_souk(server) as souk:
        found = find_endpoint(souk, name)
        if not yes and not ask(f"Take the newest version of {found.model} back?", as_json=as_json):
            raise typer.Exit(0)
        shown = souk.take_back(found.endpoint_id)
    if as_json:
        print_json(shown)
    else:
        console().print(endpoint_view(shown))


def find_endpoint(souk: Souk, text: str) -> EndpointView:
    """The endpoint that `text` names, an open one first; raises UsageMistake for none."""
    found = [each for each in souk.endpoints() if text in {each.model, str(each.endpoint_id), str(each.job_id)}]
    if not found:
        raise UsageMistake(f"You serve nothing called {text!r}. `souk endpoints` lists what you do.")
    return min(found, key=lambda each: each.state == "closed")
