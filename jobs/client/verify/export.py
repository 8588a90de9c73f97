"""A bill or earnings in a file: first that the marketplace signed exactly this, then all that follows from it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from jobs.client.errors import UsageMistake
from jobs.client.verify.bill import Verification, verify_bill, verify_earnings
from jobs.wire import BILL_FORMAT, BillView, EarningsView, SignedExport
from provider_agent.protocol import export_bytes, verify_bytes

FILE_BYTES_MAX: Final = 512 * 1024 * 1024
FIELDS: Final = frozenset(SignedExport.model_fields)


@dataclass(frozen=True)
class VerifiedExport:
    """What a file says, and whether it is true."""

    kind: str
    view: BillView | EarningsView | None  # None: it could not even be read
    server_public_key: str
    is_pinned: bool  # the key was given from outside; else the file only agrees with itself
    verification: Verification

    @property
    def fingerprint(self) -> str:
        """Of the key that signed: SHA-256, to be compared with what the marketplace publishes."""
        return fingerprint(self.server_public_key)


def read_export(path: Path) -> Any:
    """The JSON of a file; raises UsageMistake where there is none."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise UsageMistake(f"{path} has more than {FILE_BYTES_MAX} bytes.")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise UsageMistake(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageMistake(f"{path} is not JSON: {error}") from error


def verify_export(document: Any, *, server_key: str | None = None) -> VerifiedExport:
    """Check the signature, the receipts and the arithmetic; `server_key`: a public key, or its fingerprint, to pin."""
    try:
        export = SignedExport.model_validate(document)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        return _refused("", "", f"the file is not an export of a marketplace: {where or 'the whole'} is wrong")
    key = export.server_public_key
    pinned = server_key.strip().lower().removeprefix("sha256:") if server_key else None
    if set(document) != FIELDS:
        return _refused(export.format, key, "the file has fields that are no part of it")
    if pinned is not None and pinned not in (key, fingerprint(key)):
        return _refused(export.format, key, f"it is signed by the key {key}, not by the one that you gave")
    try:
        signed = export_bytes(export.format, export.body)
    except (ValueError, RecursionError):  # not a number, or nested without end: nothing that was ever signed
        signed = b""
    if not verify_bytes(key, export.signature, signed):
        return _refused(export.format, key, "the marketplace's signature does not fit: something in it was changed")
    view: BillView | EarningsView
    try:
        if export.format == BILL_FORMAT:
            view = BillView.model_validate(export.body)
            verification = verify_bill(view)
        else:
            view = EarningsView.model_validate(export.body)
            verification = verify_earnings(view)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        return _refused(export.format, key, f"what was signed cannot be read: {where} is wrong")
    return VerifiedExport(export.format, view, key, pinned is not None, verification)


def fingerprint(public_key_hex: str) -> str:
    """SHA-256 of a public key's bytes, in hex."""
    try:
        return hashlib.sha256(bytes.fromhex(public_key_hex)).hexdigest()
    except ValueError:
        return ""


def _refused(kind: str, key: str, problem: str) -> VerifiedExport:
    return VerifiedExport(kind, None, key, False, Verification(0, 0, {}, problem))
