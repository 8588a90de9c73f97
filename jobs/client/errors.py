"""What can go wrong on the customer's side. Every class names its exit status.

SoukClientError
├── UsageMistake           the command line asks for something that does not go together
├── NotSignedIn            no key for this server, or the server does not take it
├── ServerUnreachable      no answer, after all retries
├── SoukApiError           the server answered with an error
├── NothingFits            no node fits the job
├── TransferFailed         a file could not be sent or fetched whole, or would be overwritten
├── RemoteInstallFailed    a machine reached by SSH did not become a node
├── PaymentFailed          a payment by card did not come
├── ChainFailed            a chain's endpoint, or the chain itself, did not do what was asked
│   ├── ChainSilent        the endpoint gave no answer that could be read: what was sent may have arrived
│   └── SendingFailed      a transaction is signed and kept, and not known to be in a block
├── SendingInterrupted     Ctrl-C after something was signed: what, and the way on
├── TermsRefused           the marketplace wants something signed that the job file and its quote do not say
└── BillDoesNotVerify      the bill is not backed by its receipts
    └── SolvencyDoesNotVerify  a report is not true, or does not count what is owed to who asks
"""

from __future__ import annotations

from typing import Any

from jobs.client.exit_codes import ExitCode


class SoukClientError(Exception):
    """Something went wrong."""

    code = "error"
    exit_code = ExitCode.UNEXPECTED
    message: str = "Something went wrong."

    def __init__(self, message: str = "", details: dict[str, Any] | None = None) -> None:
        self.message = message or type(self).message
        self.details = details or {}
        super().__init__(self.message)


class UsageMistake(SoukClientError):
    message = "The options do not go together."
    code = "usage"
    exit_code = ExitCode.USAGE


class NotSignedIn(SoukClientError):
    message = (
        "You are not signed in to this server. Run `souk login` (without an account `souk signup`) or set SOUK_API_KEY."
    )
    code = "not_signed_in"
    exit_code = ExitCode.NOT_SIGNED_IN


class ServerUnreachable(SoukClientError):
    message = "The server does not answer."
    code = "unreachable"
    exit_code = ExitCode.UNREACHABLE


class SoukApiError(SoukClientError):
    message = "The server refused."
    code = "refused"
    exit_code = ExitCode.REFUSED

    def __init__(self, status: int, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message, details)
        self.status = status
        self.code = code
        if status >= 500:
            self.exit_code = ExitCode.UNREACHABLE


class NothingFits(SoukClientError):
    message = "No node fits this job now."
    code = "nothing_fits"
    exit_code = ExitCode.NOTHING_FITS


class TransferFailed(SoukClientError):
    message = "A file could not be transferred."
    code = "transfer_failed"
    exit_code = ExitCode.TRANSFER_FAILED


class PaymentFailed(SoukClientError):
    message = "The payment did not come."
    code = "payment_failed"
    exit_code = ExitCode.REFUSED


class RemoteInstallFailed(SoukClientError):
    message = "At least one machine did not become a node."
    code = "remote_install_failed"
    exit_code = ExitCode.REFUSED


class ChainFailed(SoukClientError):
    message = "The chain did not do what was asked."
    code = "chain_failed"
    exit_code = ExitCode.REFUSED


class ChainSilent(ChainFailed):
    message = "The chain's endpoint does not answer."


class SendingFailed(ChainFailed):
    message = "A transaction was signed, and whether it is in a block is not known."


class SendingInterrupted(SoukClientError):
    message = "Interrupted after something was signed."
    code = "interrupted"
    exit_code = ExitCode.INTERRUPTED


class TermsRefused(SoukClientError):
    message = "What the marketplace wants signed is not what the job file and its quote say. Nothing was signed."
    code = "terms_refused"
    exit_code = ExitCode.REFUSED


class BillDoesNotVerify(SoukClientError):
    message = "The bill is not backed by its receipts."
    code = "bill_does_not_verify"
    exit_code = ExitCode.BILL_DOES_NOT_VERIFY


class SolvencyDoesNotVerify(BillDoesNotVerify):
    message = "What the marketplace published is not true, or does not count what it owes you."
    code = "solvency_does_not_verify"
