"""plan and launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from jobs.client.commands.options import JobFilePath, Json, Server, Yes, ask, open_souk
from jobs.client.errors import SendingInterrupted, SoukApiError, SoukClientError, UsageMistake
from jobs.client.exit_codes import ExitCode

if TYPE_CHECKING:
    from billing.proofs.escrow import HoldAuthorization, SignedHoldAuthorization
    from jobs.client.launch import JobFile
    from jobs.client.sdk import Souk
    from jobs.client.wallet.key_file import Wallet
    from jobs.spec import Spec
    from jobs.wire import JobView, QuoteView

PANEL = "Jobs"


ModelConfig = Annotated[
    Path | None,
    typer.Option(
        "--model-config", metavar="FILE", help="The model's config.json, where it is not among the job's files."
    ),
]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    for command in (plan, launch):
        app.command(rich_help_panel=PANEL)(command)


def plan(
    file: JobFilePath,
    *,
    offline: Annotated[
        bool, typer.Option("--offline", help="Reckon what the training takes, and ask no marketplace.")
    ] = False,
    model_config: ModelConfig = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show what a training takes, where a job would run, what it would cost, and why not elsewhere.

    Examples: souk plan examples/train-tiny-llama.yaml

    souk plan finetune.yaml --offline --model-config llama/config.json
    """
    from jobs.client.launch import read_job_file, require_fit
    from jobs.client.output import console, jsonable, print_json
    from jobs.client.training_plan import (
        plan_json,
        plan_step,
        plan_training,
        require_memory,
        step_json,
        with_checks,
        with_memory_floor,
        without_less_memory,
    )
    from jobs.client.views.plan import plan_view
    from jobs.client.views.training import step_view, training_view

    spec = read_job_file(file)
    training = plan_training(spec, file.absolute().parent, model_config=model_config)
    if training is None and offline:
        raise UsageMistake("--offline shows what a training takes: this job file has no train section.")
    if training is not None and not as_json:
        console().print(training_view(training))
    require_memory(training)
    about = {} if training is None else {"training": plan_json(training)}
    if offline:
        if as_json:
            print_json(about)
        return
    asked, spec = spec, with_memory_floor(spec, training)
    with open_souk(server) as souk:
        quote = without_less_memory(souk.quote(spec), asked, spec)
        step = plan_step(training, quote)
        if step is not None and training is not None:
            step = with_checks(step, training, quote, souk)
            about["step"] = step_json(step)
    if as_json and quote.quote_id is not None:
        print_json(jsonable(quote) | about)
    elif not as_json:
        console().print(plan_view(quote, spec))
        if step is not None:
            console().print(step_view(step))
    require_fit(quote)


def launch(
    file: JobFilePath,
    *,
    yes: Yes = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Submit, print the job's id, and leave.")] = False,
    no_log: Annotated[bool, typer.Option("--no-log", help="Show progress without the log.")] = False,
    wallet_key_file: Annotated[
        Path | None,
        typer.Option("--wallet-key-file", help="For payment.mode: escrow: the key of the wallet that signs and pays."),
    ] = None,
    hold_until: Annotated[
        str, typer.Option("--hold-until", help="Until when its money may be held: 2d, or a time (default: by the job).")
    ] = "",
    provider: Annotated[
        list[str] | None,
        typer.Option("--provider", help="Wallet of a provider that may be paid; repeat it. Default: the quote's."),
    ] = None,
    rpc_url: Annotated[
        str, typer.Option("--rpc-url", envvar="SOUK_RPC_URL", help="Compare with the contract itself before signing.")
    ] = "",
    model_config: ModelConfig = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Check, quote, ask, send and submit a job; then watch it to its end. Ctrl-C leaves it running.

    A job with payment.mode: escrow is paid from your own wallet, which signs here for this job alone; its key is sent
    nowhere.

    Examples: souk launch job.yaml; souk launch job.yaml --yes --detach --json

    souk launch job.yaml --wallet-key-file ~/wallet.key --rpc-url https://rpc.example
    """
    from jobs.client.commands.escrow_session import require_address
    from jobs.client.launch import prepare, require_wallet
    from jobs.client.training_plan import plan_training, require_memory, with_memory_floor
    from jobs.client.wallet.key_file import read_wallet
    from jobs.spec import kind_of

    job_file = prepare(file)
    wallet = read_wallet(wallet_key_file) if wallet_key_file else None
    require_wallet(job_file.spec, wallet)
    training = plan_training(job_file.spec, file.absolute().parent, model_config=model_config)
    require_memory(training)
    asked, job_file = job_file.spec, replace(job_file, spec=with_memory_floor(job_file.spec, training))
    allow = [require_address(one) for one in provider or ()]
    with open_souk(server) as souk:
        quote = _quote(souk, job_file.spec, asked, as_json=as_json)
        authorization = (
            _draw_up(souk, job_file, quote, wallet, (hold_until, rpc_url, allow), as_json=as_json) if wallet else None
        )
        if not yes and not ask("Sign and launch?" if authorization else "Launch?", as_json=as_json):
            raise typer.Exit(ExitCode.OK)
        authorize = partial(_sign, wallet, authorization, quote, allow) if wallet and authorization else None
        try:
            job = _submit(souk, job_file, quote, authorize, is_paid_in=bool(authorization and rpc_url), as_json=as_json)
        except (SoukClientError, KeyboardInterrupt) as error:
            raise _explained(error, authorization, quote) from None
        if detach:
            _show_submitted(job, as_json=as_json)
        elif kind_of(job_file.spec).has_endpoint:
            watch_endpoint(souk, job.job_id, as_json=as_json)
        else:
            _watch(souk, job.job_id, as_json=as_json, with_log=not no_log)


def _quote(souk: Souk, spec: Spec, asked: Spec, *, as_json: bool) -> QuoteView:
    """The price promise, shown; raises NothingFits where there is none. `asked`: the spec as the job file has it."""
    from jobs.client.launch import require_fit
    from jobs.client.output import console
    from jobs.client.training_plan import without_less_memory
    from jobs.client.views.plan import plan_view

    quote = without_less_memory(souk.quote(spec), asked, spec)
    if not as_json:
        console().print(plan_view(quote, spec))
    require_fit(quote)
    return quote


def _draw_up(
    souk: Souk,
    job_file: JobFile,
    quote: QuoteView,
    wallet: Wallet,
    options: tuple[str, str, list[str]],
    *,
    as_json: bool,
) -> HoldAuthorization:
    """What the wallet would sign, compared with all that is known here, and shown."""
    from jobs.client.output import console
    from jobs.client.views.hold import signing_lines
    from jobs.client.wallet.authorizing import compare_with_chain, parse_until

    hold_until, rpc_url, allow = options
    until = parse_until(hold_until) if hold_until else None
    authorization = souk.draw_up(job_file.spec, quote, wallet.address, hold_until=until, allow=allow)
    if rpc_url:
        compare_with_chain(quote, authorization, rpc_url)
    if not as_json:
        console().print("\n".join(signing_lines(authorization, quote, allow)), markup=False)
    return authorization


def _sign(
    wallet: Wallet, authorization: HoldAuthorization, quote: QuoteView, allow: list[str]
) -> SignedHoldAuthorization:
    from jobs.client.wallet.authorizing import sign

    return sign(wallet, authorization, quote, allow)


def _explained(
    error: SoukClientError | KeyboardInterrupt, authorization: HoldAuthorization | None, quote: QuoteView
) -> BaseException:
    """The same with what to do about it, and about what was signed."""
    from jobs.client.launch import explain_refusal, explain_signature
    from jobs.client.wallet.authorizing import kept_path

    way_on, about = "", dict[str, Any]()
    if authorization is not None and kept_path(authorization.job_id).exists():  # it was signed
        way_on, about = explain_signature(authorization, quote), {"job_id": str(authorization.job_id)}
    if isinstance(error, KeyboardInterrupt):
        return SendingInterrupted(f"Interrupted. {way_on}", about) if way_on else error
    what_to_do = explain_refusal(error) if isinstance(error, SoukApiError) else ""
    error.message = " ".join(filter(None, (error.message, what_to_do, way_on)))
    error.details = about | error.details
    return error


def _submit(
    souk: Souk,
    job_file: JobFile,
    quote: QuoteView,
    authorize: Callable[[], SignedHoldAuthorization] | None,
    *,
    is_paid_in: bool,
    as_json: bool,
) -> JobView:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from jobs.client.launch import submit
    from jobs.client.output import console, notice

    size = sum(file.entry.size for file in job_file.files)
    send = partial(submit, souk, job_file, quote, authorize=authorize, is_paid_in=is_paid_in)
    if as_json or not job_file.files:
        return send()
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("sending files"), *columns, console=console()) as bar:
        task = bar.add_task("", total=size)
        try:
            return send(on_bytes=lambda count: bar.advance(task, count))
        except KeyboardInterrupt:
            notice("What arrived is kept for a day: the same command goes on where this one stopped.")
            raise


def _show_submitted(job: JobView, *, as_json: bool) -> None:
    from jobs.client.output import console, print_json

    if as_json:
        print_json({"type": "job", "job": job})
    else:
        console().print(f"Submitted {job.name} as {job.job_id}\n{way_back(job.job_id)}", markup=False)


def _watch(souk: Souk, job_id: UUID, *, as_json: bool, with_log: bool) -> None:
    """To the job's end, which is the exit status; Ctrl-C says how to come back."""
    from jobs.client.job_states import STOPS
    from jobs.client.output import console, notice
    from jobs.client.results import missing_result
    from jobs.client.views.job import job_view
    from jobs.client.watch import JsonWatcher, TerminalWatcher, watch

    watcher = JsonWatcher() if as_json else TerminalWatcher(with_log=with_log)
    try:
        with watcher.shown():
            job = watch(souk, job_id, watcher)
    except KeyboardInterrupt:
        notice(f"\nDetached; the job goes on.\n{way_back(job_id)}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if not as_json:
        console().print(job_view(job, scale=scale_of(souk, job)))
        if empty := missing_result(souk, job):
            notice(empty)
        elif job.state == "completed":
            console().print(f"souk download {job_id}    fetches what it made\nsouk bill {job_id}    shows what it cost")
        if job.state == "paused":
            console().print(f"souk resume {job_id} --max-total DOLLARS    goes on with a higher budget", markup=False)
    raise typer.Exit(STOPS[job.state])


def watch_endpoint(souk: Souk, job_id: UUID, *, as_json: bool) -> None:
    """Until the endpoint answers, or its job ended; Ctrl-C leaves it starting."""
    from jobs.client.job_states import ENDS, STOPS
    from jobs.client.launch import wait_until_served
    from jobs.client.output import console, notice, print_json
    from jobs.client.views.endpoint import endpoint_view

    try:
        job, found = wait_until_served(souk, job_id, notify=lambda text: None if as_json else notice(text))
    except KeyboardInterrupt:
        notice(f"\nDetached; the endpoint goes on starting.\nsouk endpoint {job_id}    shows it")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if as_json:
        print_json({"type": "endpoint", "endpoint": found})
    elif job.state not in ENDS:
        console().print(endpoint_view(found))
    else:
        notice(f"{job.name} {job.state}: {job.message or job.reason}")
    raise typer.Exit(STOPS[job.state] if job.state in ENDS else ExitCode.OK)


def scale_of(souk: Souk, job: JobView) -> int | None:
    """The decimals of the token that a wallet pays with; of other jobs they are not asked for."""
    if job.escrow is None:
        return None
    return next((asset.scale for asset in souk.assets() if asset.code == job.asset), None)


def way_back(job_id: UUID) -> str:
    """How to come back to a job that goes on."""
    return f"souk logs -f {job_id}    comes back to it\nsouk cancel {job_id}    stops it"
