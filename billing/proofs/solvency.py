"""A sealed solvency report, and the proof that one's own accounts are among its debts. Needs no server.

A report is signed, has for each asset what is owed, by a Merkle-sum tree over every single account, and names the
report before it. Each creditor gets a salt for each account and the path from its leaf up to the root:

    leaf    = SHA-256(0 | "souk-solvency-leaf-1" asset kind owner job amount, a line each | salt), amount
    report  = SHA-256("souk-solvency-1" newline body as JSON with sorted keys), signed as exported bills are

The leaf names its owner, or two customers with one balance could be shown one leaf with one salt. What such a proof
cannot show is written in docs/operator-money.md.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from billing.proofs.sum_tree import PROOF_MAX, Node, climb, leaf
from provider_agent.protocol.signing import export_bytes, verify_bytes

FORMAT: Final = "souk-solvency-1"
LEAF_FORMAT: Final = "souk-solvency-leaf-1"
SALT_BYTES: Final = 32
ASSETS_MAX: Final = 1000
ACCOUNTS_MAX: Final = 100_000  # of one proof, all its pages together
NO_REPORT: Final = "0" * 64  # what comes before the first one

_WORD: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")

Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Owed = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,96})$")]  # never below zero, written in one way
Balance = Annotated[str, StringConstraints(pattern=r"^(0|-?[1-9][0-9]{0,96})$")]
Balances = Annotated[dict[str, Balance], Field(max_length=100)]


class SolvencyBroken(ValueError):
    """What was published, or proven, is not true; the message names the place."""


class _Said(BaseModel):
    """A marketplace's report; it may have more fields than this version knows."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ChainPlace(_Said):
    """Where anybody finds a token's money: ask the token for balanceOf(contract) at the block."""

    chain_id: int
    token: str = Field(pattern=r"^0x[0-9a-fA-F]{40}$")
    contract: str = Field(pattern=r"^0x[0-9a-fA-F]{40}$")
    block: int | None  # None: the books were in the middle of a block's events


class AssetReport(_Said):
    """One asset in base units: all that is owed, as the root of its tree, and where it is."""

    asset: str
    scale: int = Field(ge=0, le=77)
    leaves: int = Field(ge=0)
    root: Hash
    owed: Owed
    owed_to_customers: Owed
    owed_to_providers: Owed
    in_dispute: Owed
    own: Balances
    held: Balance
    mirrors: Balances
    chain: ChainPlace | None = None


class Mark(_Said):
    """The newest transfer that counts, with its place in the ledger's chain of hashes."""

    seq: int
    hash: Hash


class Report(_Said):
    """What is owed and held, at one moment of the ledger."""

    number: int = Field(ge=1)
    at: datetime
    previous: Hash
    transfers: Mark
    assets: list[AssetReport] = Field(max_length=ASSETS_MAX)

    def of(self, asset: str) -> AssetReport | None:
        """One asset's part; None where nothing of it was ever booked."""
        return next((each for each in self.assets if each.asset == asset), None)


class SignedReport(BaseModel):
    """A report with the marketplace's Ed25519 signature, as files of bills are signed."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format: Annotated[str, StringConstraints(pattern=f"^{FORMAT}$")]
    server_public_key: Hash
    signature: str = Field(pattern=r"^[A-Za-z0-9+/]{85}[AQgw]==$")
    body: dict[str, Any]


class Sister(_Said):
    """One step of the way to the root."""

    hash: Hash
    sum: Owed


class AccountProof(_Said):
    """One account, and the way from its leaf to the root."""

    asset: str
    kind: str
    owner_id: UUID
    job_id: UUID | None
    amount: Owed
    salt: Hash
    index: int = Field(ge=0)
    sisters: list[Sister] = Field(max_length=PROOF_MAX)


class ProofPage(_Said):
    """GET /api/v1/solvency/proof: a part of an organisation's accounts in one report."""

    report: dict[str, Any]
    owner_id: UUID
    accounts: list[AccountProof]
    next: int | None  # the page that follows


def commitment_of(body: dict[str, Any]) -> str:
    """The hash by which a report is known, compared, and named by the one after it."""
    return hashlib.sha256(export_bytes(FORMAT, body)).hexdigest()


def account_leaf(asset: str, kind: str, owner_id: UUID, job_id: UUID | None, *, amount: int, salt: bytes) -> Node:
    """The leaf of one account; raises ValueError for what none could be."""
    if len(salt) != SALT_BYTES or not _WORD.fullmatch(asset) or not _WORD.fullmatch(kind):
        raise ValueError(f"no account has the salt {salt.hex()} and the name {asset!r} {kind!r}")
    lines = (LEAF_FORMAT, asset, kind, owner_id, job_id or "", amount)
    return leaf("\n".join(map(str, lines)).encode() + b"\n" + salt, amount)


def read_report(document: Any, *, server_key: str | None = None) -> Report:
    """The report of a signed document, once signature and sums were checked; raises SolvencyBroken.

    `server_key`: the public key, or its SHA-256, that must have signed.
    """
    try:
        signed = SignedReport.model_validate(document)
        message = export_bytes(signed.format, signed.body)
        report = Report.model_validate(signed.body)
    except (ValidationError, RecursionError, ValueError) as error:
        raise SolvencyBroken(f"this is no report: {_where(error)}") from error
    pinned = server_key.strip().lower().removeprefix("sha256:") if server_key else None
    key = signed.server_public_key
    if pinned is not None and pinned not in (key, hashlib.sha256(bytes.fromhex(key)).hexdigest()):
        raise SolvencyBroken(f"report {report.number} is signed by the key {key}, not by the one that you gave")
    if not verify_bytes(key, signed.signature, message):
        raise SolvencyBroken(f"the signature of report {report.number} does not fit: something in it was changed")
    if len({each.asset for each in report.assets}) != len(report.assets):
        raise SolvencyBroken(f"report {report.number} names an asset twice")
    for each in report.assets:
        _check_sums(each)
    return report


def check_accounts(report: Report, accounts: Sequence[AccountProof], owner_id: UUID) -> dict[tuple[str, str], int]:
    """What the report counts for this owner, by asset and kind; raises SolvencyBroken where a proof does not hold."""
    if len(accounts) > ACCOUNTS_MAX:
        raise SolvencyBroken(f"the proof has more than {ACCOUNTS_MAX} accounts")
    proven: dict[tuple[str, str], int] = defaultdict(int)
    names, places = set(), set()
    for each in accounts:
        _check_account(report, each, owner_id)
        names.add((each.asset, each.kind, each.job_id))
        places.add((each.asset, each.index))
        proven[each.asset, each.kind] += int(each.amount)
    if len(names) != len(accounts) or len(places) != len(accounts):
        raise SolvencyBroken("an account, or a place in the tree, is proven twice")
    return dict(proven)


def check_expected(proven: dict[tuple[str, str], int], expected: dict[tuple[str, str], int]) -> None:
    """That what is counted for an owner is what its own transfers add up to; raises SolvencyBroken."""
    for name in sorted(proven.keys() | expected.keys()):
        counted, due = proven.get(name, 0), expected.get(name, 0)
        if counted != due:
            asset, kind = name
            raise SolvencyBroken(
                f"your transfers add up to {due} base units of {asset} in {kind}; the report counts {counted} as owed"
                " to you there"
            )


def check_links(commitment: str, later: Iterable[dict[str, Any]]) -> None:
    """That each of these bodies, oldest first, names the one before it, the first one the report of this commitment.

    Raises SolvencyBroken: then the marketplace published two histories.
    """
    for body in later:
        if body.get("previous") != commitment:
            raise SolvencyBroken(
                f"report {body.get('number')} says that {body.get('previous')} comes before it; what you saw is"
                f" {commitment}. Two histories were published: keep both."
            )
        commitment = commitment_of(body)


def add_up(transfers: Iterable[dict[str, Any]], *, until: int) -> dict[tuple[str, str], int]:
    """What an owner's transfers up to one number leave it with, by asset and kind of account; nothing for zeros.

    Raises SolvencyBroken for what is no transfer of an owner.
    """
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for each in transfers:
        try:
            seq, amount, change = int(each["seq"]), int(each["amount"]), int(each["change"])
            names = [str(each[name]) for name in ("mode", "asset", "debit_kind", "credit_kind", "id")]
        except (KeyError, TypeError, ValueError) as error:
            raise SolvencyBroken(f"one of your transfers does not say what it is: {error!r}") from error
        mode, asset, debit_kind, credit_kind, transfer_id = names
        if seq > until or mode not in {"single", "post"}:
            continue
        if change not in {amount, -amount, 0}:
            raise SolvencyBroken(f"transfer {transfer_id} of {amount} changed what you own by {change}")
        if change <= 0:
            sums[asset, debit_kind] -= amount
        if change >= 0:
            sums[asset, credit_kind] += amount
    return {name: amount for name, amount in sums.items() if amount}


def _check_sums(one: AssetReport) -> None:
    owed = int(one.owed)
    if owed != sum(map(int, (one.owed_to_customers, one.owed_to_providers, one.in_dispute))):
        raise SolvencyBroken(f"what is owed of {one.asset} is not customers, providers and disputes together")
    if int(one.held) != sum(map(int, one.mirrors.values())):
        raise SolvencyBroken(f"what is held of {one.asset} is not the sum of the places where it is")
    if owed + sum(map(int, one.own.values())) != int(one.held):
        raise SolvencyBroken(f"the two sides of {one.asset} differ: owed and the platform's own is not what is held")
    if (one.leaves == 0) != (owed == 0):
        raise SolvencyBroken(f"{one.asset} has {one.leaves} accounts that are owed {owed}")


def _check_account(report: Report, each: AccountProof, owner_id: UUID) -> None:
    name = f"your account {each.asset} {each.kind}" + (f" of job {each.job_id}" if each.job_id else "")
    one = report.of(each.asset)
    if each.owner_id != owner_id:
        raise SolvencyBroken(f"{name} is proven for {each.owner_id}, and you are {owner_id}")
    if one is None:
        raise SolvencyBroken(f"{name} is in no tree: the report has no {each.asset}")
    try:
        start = account_leaf(
            each.asset,
            each.kind,
            each.owner_id,
            each.job_id,
            amount=int(each.amount),
            salt=bytes.fromhex(each.salt),
        )
        sisters = [Node(bytes.fromhex(sister.hash), int(sister.sum)) for sister in each.sisters]
        root = climb(start, each.index, one.leaves, sisters)
    except ValueError as error:
        raise SolvencyBroken(f"{name} is not proven: {error}") from error
    if root.sum != int(one.owed):
        raise SolvencyBroken(f"{name} leads to a sum of {root.sum}; the report says that {one.owed} is owed")
    if root.hash.hex() != one.root:
        raise SolvencyBroken(f"{name} with {each.amount} is not in the tree: the way up leads to another root")


def _where(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return ".".join(str(part) for part in error.errors()[0]["loc"]) + " is wrong"
    return str(error)
