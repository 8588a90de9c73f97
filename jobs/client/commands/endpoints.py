"""endpoints, endpoint, deploy, rollback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jobs.client.commands.options import JobFilePath, Json, Server, Yes, ask, open_souk
from jobs.client.errors import UsageMistake

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire import EndpointView

PANEL = "Serving"
OLD_ROLLBACK = "take-back"  # the name of `rollback` in 0.1, kept for one version
EndpointName = Annotated[
    str,
    typer.Argument(metavar="ENDPOINT", help="The model's name, or the endpoint's or its job's id.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    for command in (endpoints, endpoint, deploy, rollback):
        app.command(rich_help_panel=PANEL)(command)
    app.command(OLD_ROLLBACK, hidden=True, rich_help_panel=PANEL)(rollback_by_old_name)


def endpoints(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also closed endpoints.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List your endpoints: models, addresses, replicas, prices.

    Example: souk endpoints
    """
    from jobs.client.output import console, print_json
    from jobs.client.views.endpoint import endpoints_view

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
    from jobs.client.output import console, print_json
    from jobs.client.views.endpoint import endpoint_view

    with open_souk(server) as souk:
        found = find_endpoint(souk, name)
    if as_json:
        print_json(found)
    else:
        console().print(endpoint_view(found))


def deploy(file: JobFilePath, yes: Yes = False, server: Server = None, as_json: Json = False) -> None:
    """Deploy a new version of an endpoint: it replaces the old one without a pause, as `rollout` in the file says.

    The endpoint is the open one that the file's model name belongs to. `souk cancel` ends an endpoint.

    Example: souk deploy serve.yaml --yes
    """
    from jobs.client.launch import prepare
    from jobs.client.output import console, print_json
    from jobs.client.upload import forget_upload, upload_files
    from jobs.client.views.endpoint import endpoint_view
    from jobs.spec import kind_of, serve_of

    job_file = prepare(file)
    if not kind_of(job_file.spec).has_endpoint:
        raise UsageMistake(
            f"This job file is of kind: {job_file.spec.kind}, and only one that serves can be deployed."
            " `souk launch` submits it."
        )
    serve = serve_of(job_file.spec)
    with open_souk(server) as souk:
        found = find_endpoint(souk, serve.served_as or job_file.spec.name)
        if not yes and not ask(f"Deploy version {len(found.versions) + 1} of {found.model}?", as_json=as_json):
            raise typer.Exit(0)
        input_id = upload_files(souk, job_file.files) if job_file.files else None
        deployed = souk.deploy(found.endpoint_id, job_file.spec, input_artifact_id=input_id)
        forget_upload(souk, job_file.files)
    if as_json:
        print_json(deployed)
    else:
        console().print(endpoint_view(deployed))


def rollback(name: EndpointName, yes: Yes = False, server: Server = None, as_json: Json = False) -> None:
    """Roll back to the version before the newest: at once, while its replicas are still there.

    Example: souk rollback my-llm --yes
    """
    from jobs.client.output import console, print_json
    from jobs.client.views.endpoint import endpoint_view

    with open_souk(server) as souk:
        found = find_endpoint(souk, name)
        if not yes and not ask(f"Roll back the newest version of {found.model}?", as_json=as_json):
            raise typer.Exit(0)
        shown = souk.rollback(found.endpoint_id)
    if as_json:
        print_json(shown)
    else:
        console().print(endpoint_view(shown))


def rollback_by_old_name(name: EndpointName, yes: Yes = False, server: Server = None, as_json: Json = False) -> None:
    """Old name of `souk rollback`.

    Example: souk take-back my-llm --yes
    """
    from jobs.client.output import notice

    notice("`souk take-back` is called `souk rollback` now; the old name goes with the next version.")
    rollback(name, yes=yes, server=server, as_json=as_json)


def find_endpoint(souk: Souk, text: str) -> EndpointView:
    """The endpoint that `text` names, an open one first; raises UsageMistake for none."""
    found = [each for each in souk.endpoints() if text in {each.model, str(each.endpoint_id), str(each.job_id)}]
    if not found:
        raise UsageMistake(f"You serve nothing called {text!r}. `souk endpoints` lists what you do.")
    return min(found, key=lambda each: each.state == "closed")
