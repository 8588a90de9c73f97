"""Fetch a solvency report and one's own proof, and check both here; only arithmetic and hashes are believed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pydantic import ValidationError

from billing.proofs.solvency import (
    AssetReport,
    ProofPage,
    Report,
    SolvencyBroken,
    add_up,
    check_accounts,
    check_expected,
    commitment_of,
    read_report,
)
from jobs.client.errors import ChainFailed, UsageMistake
from jobs.client.sdk_account import next_path
from jobs.client.settings import choose_server, load_settings
from jobs.client.transport import Transport
from jobs.client.verify.seen_reports import compare_with_seen, reports_of
from jobs.client.wallet.chain_reader import ChainReader, place_of
from jobs.client.wallet.chain_wallet import encode_call
from jobs.client.wallet.known_contracts import KnownContract, known_contract

if TYPE_CHECKING:
    from jobs.client.sdk import Souk

PAGES_MAX: Final = 100
TRANSFERS_PER_PAGE: Final = 200
TRANSFER_PAGES_MAX: Final = 250  # 50,000 transfers are added up; with more, a remark says so
FILE_BYTES_MAX: Final = 256 * 1024 * 1024


@dataclass(frozen=True)
class Found:
    """What a chain says of the contract; `block`: None for now."""

    block: int | None
    balance: int
    liabilities: int


@dataclass
class Checked:
    """A report that is true as far as it says itself, and what of it is one's own."""

    server: str
    document: dict[str, Any]
    report: Report
    is_pinned: bool
    proof: dict[str, Any] = field(default_factory=dict)
    proven: dict[tuple[str, str], int] = field(default_factory=dict)
    transfers: int | None = None  # that add up to the same; None: not compared
    places: dict[str, Found] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def commitment(self) -> str:
        """The report's hash."""
        return commitment_of(self.document["body"])

    def as_json(self) -> dict[str, Any]:
        """All of it; amounts as texts."""
        own: dict[str, dict[str, str]] = {}
        for (asset, kind), amount in sorted(self.proven.items()):
            own.setdefault(asset, {})[kind] = str(amount)
        return {
            "report": self.document["body"],
            "commitment": self.commitment,
            "server_public_key": self.document["server_public_key"],
            "is_pinned": self.is_pinned,
            "own": own if self.proof else None,
            "accounts_proven": len(self.proof.get("accounts", [])),
            "transfers_compared": self.transfers,
            "chain": {
                asset: {"block": found.block, "balance": str(found.balance), "liabilities": str(found.liabilities)}
                for asset, found in self.places.items()
            },
            "remarks": self.remarks,
        }


def check_public(server: str | None, *, number: int | None, server_key: str | None) -> Checked:
    """A report as everybody is shown it. Raises SolvencyBroken."""
    transport = Transport(choose_server(server, load_settings()), "")
    try:
        document = _published(transport, number)
        report = read_report(document, server_key=server_key)
        checked = Checked(transport.server, document, report, server_key is not None)
        remark = compare_with_seen(transport, document, is_newest=number is None)
    finally:
        transport.close()
    if number is not None and report.number != number:
        raise SolvencyBroken(f"report {number} was asked for, and {report.number} came")
    checked.remarks += [remark] if remark else []
    return checked


def check_own(souk: Souk, *, number: int | None, server_key: str | None) -> Checked:
    """A report, that everybody is shown the same, and that one's own accounts are in it. Raises SolvencyBroken."""
    # 1. What everybody sees, asked without the key.
    checked = check_public(souk.transport.server, number=number, server_key=server_key)
    # 2. The proof for exactly that one.
    checked.proof = _fetch_proof(souk.transport, checked.report.number)
    if checked.proof["report"] != checked.document:
        raise SolvencyBroken(f"you are shown another report {checked.report.number} than everybody")
    owner_id = souk.me().organisation.id
    _check_proof(checked, owner_id)
    # 3. An account that the proof leaves out is missed by one's own transfers, unless those are left out, too.
    transfers = _fetch_transfers(souk.transport)
    if transfers is None:
        checked.remarks.append(
            "You have too many transfers to add them up here: compare the amounts with what you know."
        )
    else:
        until = checked.report.transfers.seq
        check_expected(checked.proven, add_up(transfers, until=until))
        checked.transfers = sum(int(each["seq"]) <= until for each in transfers)
    return checked


def check_file(path: Path, *, server_key: str | None) -> Checked:
    """An exported proof, with no server. Raises SolvencyBroken."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise UsageMistake(f"{path} has more than {FILE_BYTES_MAX} bytes.")
        proof = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageMistake(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageMistake(f"{path} is not JSON: {error}") from error
    page = _page(proof)
    checked = Checked("", page.report, read_report(page.report, server_key=server_key), server_key is not None, proof)
    _check_proof(checked, page.owner_id)
    checked.remarks.append(f"It is the proof of the organisation {page.owner_id}; is that you?")
    if server_key is None:
        checked.remarks.append("Without --server-key it only agrees with itself.")
    return checked


def look_on_chain(checked: Checked, rpc_url: str) -> dict[str, Found]:
    """What the escrow contracts on this endpoint's chain have, now where the report's block cannot be asked.

    Raises SolvencyBroken where the contract has less at the report's block than the report states. The present amount
    is compared with nothing, and a remark says so.
    """
    with ChainReader(rpc_url) as chain:
        here = [one for one in checked.report.assets if one.chain and one.chain.chain_id == chain.chain_id]
        if not here:
            where = f"The endpoint {place_of(rpc_url)} is chain {chain.chain_id}"
            raise UsageMistake(f"{where}, and none of the report's assets is there. Give one of another chain.")
        return {one.asset: _look(chain, one, checked) for one in here}


def _published(transport: Transport, number: int | None) -> dict[str, Any]:
    if number is not None:
        return _object(transport.get(f"/solvency/reports/{number}"))
    found = reports_of(transport.get("/solvency/reports"))["results"]
    if not found:
        raise UsageMistake("This marketplace has sealed no report yet: try again in a few minutes.")
    return _object(found[0])


def _fetch_proof(transport: Transport, number: int) -> dict[str, Any]:
    """All pages as one."""
    whole: dict[str, Any] = {}
    page: int | None = 0
    for _ in range(PAGES_MAX):
        found = _object(transport.get("/solvency/proof", report=number, page=page))
        read = _page(found)
        if whole and (whole["report"], whole["owner_id"]) != (found["report"], found["owner_id"]):
            raise SolvencyBroken("the pages of the proof are of different reports")
        whole = {**found, "accounts": [*whole.get("accounts", []), *found["accounts"]], "next": None}
        page = read.next
        if page is None:
            return whole
    raise SolvencyBroken(f"the proof has more than {PAGES_MAX} pages")


def _check_proof(checked: Checked, owner_id: UUID) -> None:
    page = _page(checked.proof)
    if page.owner_id != owner_id:
        raise SolvencyBroken(f"the proof is of {page.owner_id}, and you are {owner_id}")
    checked.proven = check_accounts(checked.report, page.accounts, owner_id)


def _fetch_transfers(transport: Transport) -> list[dict[str, Any]] | None:
    """Every transfer of one's own; None for too many."""
    path, found = f"/transfers?page_size={TRANSFERS_PER_PAGE}", list[dict[str, Any]]()
    for _ in range(TRANSFER_PAGES_MAX):
        page = _object(transport.get(path))
        rows = page.get("results")
        if not isinstance(rows, list):
            raise SolvencyBroken("the marketplace answers something else than your transfers")
        found += rows
        if not page.get("next"):
            return found
        path = next_path(str(page["next"]))
    return None


def _look(chain: ChainReader, one: AssetReport, checked: Checked) -> Found:
    place = one.chain
    assert place is not None  # noqa: S101 - those without were left out
    known = known_contract(checked.server, one.asset)
    # The token and the chain, too: whoever made up a token says of it whatever balance is wanted.
    reported = KnownContract(chain_id=place.chain_id, contract=place.contract, token=place.token, scale=one.scale)
    if known is not None and not known.is_same(reported):
        raise SolvencyBroken(f"the report names {reported} for {one.asset}; until now it was {known}")
    if place.block is None:
        checked.remarks.append(
            f"{one.asset}: the report names no block, so what the chain has is compared with nothing."
        )
    else:
        try:
            found = _read(chain, place.token, place.contract, place.block)
        except ChainFailed:
            checked.remarks.append(
                f"{one.asset}: the endpoint does not answer for block {place.block}. What the chain has now is compared"
                " with nothing."
            )
        else:
            due = int(one.mirrors.get("chain_escrow", "0"))
            if found.balance < due:
                raise SolvencyBroken(
                    f"the report says that {due} base units of {one.asset} lie in {place.contract}; at block"
                    f" {place.block} the chain has {found.balance} there"
                )
            return found
    return _read(chain, place.token, place.contract, None)


def _read(chain: ChainReader, token: str, contract: str, block: int | None) -> Found:
    """The token's balance of the contract and what the contract owes, at a block or now. Raises ChainFailed."""

    def ask(to: str, call: bytes) -> int:
        at = "latest" if block is None else hex(block)
        return chain.number("eth_call", {"to": to, "data": "0x" + call.hex()}, at)

    return Found(
        block,
        ask(token, encode_call("balanceOf(address)", [contract])),
        ask(contract, encode_call("totalLiabilities()", [])),
    )


def _page(document: Any) -> ProofPage:
    try:
        return ProofPage.model_validate(document)
    except (ValidationError, RecursionError) as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"]) if isinstance(error, ValidationError) else "it"
        raise SolvencyBroken(f"this is no proof: {where or 'the whole'} is wrong") from error


def _object(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise SolvencyBroken("the marketplace answers something else than a report")
    return answer
