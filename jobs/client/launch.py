"""From a job file to a running job: check, gather, quote, ask, send, submit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from billing.proofs.escrow import HoldAuthorization, SignedHoldAuthorization
from jobs.client.errors import NothingFits, SoukApiError, UsageMistake
from jobs.client.gather import LocalFile, gather_files
from jobs.client.ignoring import explain_left_out
from jobs.client.output import duration, notice
from jobs.client.sdk import Souk
from jobs.client.upload import forget_upload, upload_files
from jobs.client.wallet.key_file import Wallet
from jobs.payment.terms import show_units
from jobs.spec import Spec, SpecError, SpecErrors, parse
from jobs.spec.document import FILE_BYTES_MAX
from jobs.wire import EndpointView, JobView, QuoteView

QUOTE_MARGIN: Final = timedelta(seconds=10)  # before it expires, nothing is sent any more
FINAL_POLL_SECONDS: Final = 2.0


@dataclass(frozen=True)
class JobFile:
    """A checked job file with what it needs from this computer."""

    path: Path
    spec: Spec
    files: list[LocalFile]
    secrets: dict[str, str]


def read_job_file(path: Path) -> Spec:
    """The spec in a file; raises SpecErrors, or UsageMistake where it cannot be read."""
    try:
        with path.open("rb") as opened:
            return parse(opened.read(FILE_BYTES_MAX + 1))
    except OSError as error:
        raise UsageMistake(f"{path} cannot be read: {error.strerror}") from error


def prepare(path: Path) -> JobFile:
    """Everything that can be wrong on this side, found before anything is sent."""
    spec = read_job_file(path)
    missing = [
        SpecError(
            None,
            None,
            f"secrets[{index}]",
            f"the environment variable {name} is not set",
            "its value in the environment",
        )
        for index, name in enumerate(spec.secrets)
        if name not in os.environ
    ]
    if missing:
        raise SpecErrors(missing)
    secrets = {name: os.environ[name] for name in spec.secrets}
    gathered = gather_files(spec, path.absolute().parent)
    if gathered.left_out:
        notice(explain_left_out(gathered.left_out))
    return JobFile(path, spec, gathered.files, secrets)


def require_wallet(spec: Spec, wallet: Wallet | None) -> None:
    """Raise UsageMistake unless a wallet is there exactly where it pays."""
    if spec.payment.mode == "escrow" and wallet is None:
        raise UsageMistake(
            "This job is paid straight from a wallet (payment.mode: escrow), which has to sign for it: add"
            " --wallet-key-file FILE. `souk plan` shows the price without it; mode: credits pays from your balance."
        )
    if spec.payment.mode != "escrow" and wallet is not None:
        raise UsageMistake(
            "This job is paid from your balance: no wallet signs anything. Leave --wallet-key-file out, or set"
            " payment.mode: escrow in the job file."
        )


def require_fit(quote: QuoteView) -> None:
    """Raise NothingFits, with the reasons and the nearest fixes, for a quote without a promise."""
    if quote.quote_id is not None:
        return
    plan = quote.plan
    fixes = "; ".join(fix.message for fix in plan.fixes)
    message = f"0 of {plan.nodes_seen} nodes fit this job." + (f" Would help: {fixes}." if fixes else "")
    raise NothingFits(message, {"plan": plan.model_dump(mode="json")})


def require_fresh(quote: QuoteView) -> None:
    """Raise UsageMistake where the quote is over, as when somebody thought for long: then nothing should be signed."""
    now = datetime.now(UTC)
    if quote.expires_at is not None and now > quote.expires_at - QUOTE_MARGIN:
        raise UsageMistake(
            f"The quote is over since {quote.expires_at:%Y-%m-%d %H:%M:%S} UTC, and nothing was signed: run the command"
            f" again for a new one. (This computer's clock says {now:%Y-%m-%d %H:%M:%S} UTC.)"
        )


def submit(
    souk: Souk,
    job_file: JobFile,
    quote: QuoteView,
    *,
    authorize: Callable[[], SignedHoldAuthorization] | None = None,
    is_paid_in: bool = False,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> JobView:
    """Send the files, then submit exactly what was quoted; repeating a lost submit changes nothing.

    `authorize` is called when nothing is left but to submit, and only while the quote is good. `is_paid_in`: the
    contract has the wallet's money, so that a marketplace that lacks it waits for final blocks only.
    """
    require_fit(quote)
    quote_id = quote.quote_id
    assert quote_id is not None  # noqa: S101 - require_fit has raised otherwise
    input_id = upload_files(souk, job_file.files, on_bytes=on_bytes) if job_file.files else None
    if authorize is not None:
        require_fresh(quote)
    authorization = authorize() if authorize is not None else None

    def send() -> JobView:
        return souk.submit(
            job_file.spec,
            quote_id,
            input_artifact_id=input_id,
            secrets=job_file.secrets,
            authorization=authorization,
            idempotency_key=str(uuid4()),
        )

    job = _repeat_until_final(send, quote) if is_paid_in else send()
    if job_file.files:
        forget_upload(souk, job_file.files)
    return job


def _repeat_until_final(send: Callable[[], JobView], quote: QuoteView) -> JobView:
    """Again while the wallet's deposit is not final, as long as the quote is good."""
    has_notified = False
    while True:
        try:
            return send()
        except SoukApiError as error:
            is_over = quote.expires_at is None or datetime.now(UTC) > quote.expires_at - QUOTE_MARGIN
            if error.code != "wallet_short" or is_over:
                raise
        if not has_notified:
            notice("The contract has the wallet's money, and the marketplace waits until that is final ...")
            has_notified = True
        time.sleep(FINAL_POLL_SECONDS)


def explain_signature(authorization: HoldAuthorization, quote: QuoteView) -> str:
    """What to do about a signature that was made for a submit which did not succeed, or nobody knows whether it did."""
    most = show_units(authorization.max_amount, asset=quote.asset, scale=quote.asset_scale)
    return (
        f"Your wallet has signed for job {authorization.job_id}, for at most {most}, and the marketplace may have that."
        f" `souk show {authorization.job_id}` shows whether the job is there; if not, `souk escrow give-up"
        f" {authorization.job_id} --asset {quote.asset} --wallet-key-file FILE` revokes the signature."
    )


def explain_refusal(error: SoukApiError) -> str:
    """What to do about a refused submit, where there is something."""
    if error.code == "wallet_short":  # it says all itself
        return ""
    if error.status == 402:
        asset = error.details.get("asset", "USD")
        what = "missing amount" if asset == "USD" else f"missing {asset}"
        return f"Deposit the {what}, or lower budget.max_total."
    if error.code.startswith("quote_"):
        return (
            "The quote has expired or prices have changed: run the command again for a new one. Files that arrived are"
            " not sent again."
        )
    if error.status == 429:
        seconds = error.details.get("retry_after_seconds")
        return f"Try again in {duration(seconds)}." if isinstance(seconds, int | float) else "Try again later."
    return ""


def wait_until_served(souk: Souk, job_id: UUID, *, notify: Callable[[str], None]) -> tuple[JobView, EndpointView]:
    """Poll until a replica is ready, the endpoint sleeps, or its job ended; `notify` gets each new reason to wait."""
    last_shown = ""
    while True:
        job = souk.job(job_id)
        found = next(each for each in souk.endpoints() if each.job_id == job_id)
        if found.state in {"ready", "asleep", "closed", "paused"}:
            return job, found
        now = f"{found.replicas_ready} of {found.replicas_desired} replicas are ready. {found.why}".strip()
        if now != last_shown:
            notify(now)
            last_shown = now
        time.sleep(FINAL_POLL_SECONDS)
