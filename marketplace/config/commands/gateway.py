"""`souk gateway`: one address for everything that is served, until SIGTERM."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from jobs.gateway.process import Serving

app = typer.Typer(
    help="Serve /v1/chat/completions, /v1/completions, /v1/embeddings and /v1/models for every endpoint.\n\n"
    "Example: souk gateway --control https://souk.example --url wss://gateway.souk.example --bind 0.0.0.0"
)


@app.callback(invoke_without_command=True)
def gateway(  # noqa: PLR0917  Typer reads the options from the parameters
    control: Annotated[
        str | None, typer.Option(help="The marketplace's address. Default: SOUK_GATEWAY_CONTROL_URL.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="ws:// or wss://, by which agents reach it. Default: SOUK_GATEWAY_URL.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Its own folder. Default: SOUK_GATEWAY_DATA, else ~/.souk-gateway.")
    ] = None,
    bind: Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="Port; 0: a free one. Default: 8002.")] = None,
    fd: Annotated[int | None, typer.Option(min=0, help="A socket that listens already, instead.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON when it listens.")] = False,
) -> None:
    """Answer callers by the replicas that agents open tunnels for; usage is counted and reported.

    The token with which gateways authenticate comes in SOUK_GATEWAY_TOKEN, and all limits in other variables, which
    docs/serving.md lists.

    Example: SOUK_GATEWAY_TOKEN=... souk gateway --control http://127.0.0.1:8000 --data ~/gateway --port 8002
    """
    try:
        import uvloop

        from jobs.gateway.backend import compose
        from jobs.gateway.config import ConfigError, GatewayConfig
        from jobs.gateway.process import serve
    except ModuleNotFoundError as missing:
        _say(f"`souk gateway` needs the server's packages ({missing.name} is missing): pip install 'gpusouk[server]'")
        raise typer.Exit(1) from None
    _log_as_lines()
    try:
        config = GatewayConfig.from_env(os.environ, control_url=control, url=url, data=data, bind=bind, port=port)
        listener = None if fd is None else [socket.socket(fileno=fd)]
        uvloop.run(serve(config, compose, listener, on_listening=_announce if as_json else None))
    except (ConfigError, OSError) as error:
        _say(f"souk gateway: {error}")
        raise typer.Exit(1) from None


def _announce(serving: Serving) -> None:
    line = {
        "port": serving.port,
        "gateway_id": str(serving.identity.gateway_id),
        "public_key": serving.identity.public_key,
        "pid": os.getpid(),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _log_as_lines() -> None:
    """As the server's other processes do, without Django."""
    from marketplace.config.logging import JsonLines

    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=os.environ.get("SOUK_LOG_LEVEL", "INFO").upper(), handlers=[handler])


def _say(line: str) -> None:
    typer.echo(line, err=True)


if __name__ == "__main__":
    app()
