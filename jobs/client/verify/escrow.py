"""Whether what a contract is said to have done for a job fits to the job's lines and to what its nodes signed.

Pure, as `bill_verify`, which calls it: wallets, chain and contract of every line, each lease's parts, that only what a
receipt says was settled, never more than is charged, and the hold's sum. `souk escrow show` asks the contract itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jobs.wire import BillLine, BillView, EarningsLine, EscrowLeaseView, EscrowView
from provider_agent.protocol import ZERO_ADDRESS

FEE_BPS_MAX: Final = 2_000  # of any instance
BPS_WHOLE: Final = 10_000


def bill_problem(bill: BillView) -> str | None:
    """The first thing about the contract that does not fit, in words; None: all of it does."""
    held = bill.escrow
    if held is None:
        is_wallets = any(line.payment and line.payment.customer != ZERO_ADDRESS for line in bill.lines)
        return "a wallet pays it, and it does not say what the contract holds" if is_wallets else None
    if bill.settlement is not None:
        return "it is settled by the marketplace's ledger, and paid by a contract"
    checks = [_line_problem(line, held) for line in bill.lines]
    checks += _lease_problems({line.lease_id: line for line in bill.lines}, held)
    checks += [check(bill, held) for check in _HOLD]
    return next((problem for problem in checks if problem), None)


def earnings_problem(line: EarningsLine) -> str | None:
    """The same of one line of earnings."""
    if line.escrow is None:
        return None
    if line.payment is None or line.payment.customer == ZERO_ADDRESS:
        return f"a contract is said to have settled lease {line.lease_id}, which no wallet pays"
    return _lease_problem(line, line.escrow)


def _line_problem(line: BillLine, held: EscrowView) -> str | None:
    """Its terms, over which its receipts are signed, are the hold's."""
    name = f"the line of lease {line.lease_id} ({line.node_name})"
    terms = line.payment
    if terms is None:
        return f"{name} is not paid in a token"
    if ZERO_ADDRESS in {terms.customer, terms.provider}:
        return f"{name} names no wallet of its customer or of its provider"
    stated = (terms.customer.lower(), terms.chain_id, terms.contract.lower())
    if stated != (held.wallet.lower(), held.chain_id, held.contract.lower()):
        return f"{name} is signed for another wallet, chain or contract than the hold's"
    return None


def _lease_problems(lines: dict[object, BillLine], held: EscrowView) -> list[str | None]:
    ids = [lease.lease_id for lease in held.leases]
    problems: list[str | None] = ["a lease was settled twice"] if len(set(ids)) < len(ids) else []
    for lease in held.leases:
        line = lines.get(lease.lease_id)
        problems.append(_lease_problem(line, lease) if line else f"lease {lease.lease_id} is settled and not billed")
    return problems


def _lease_problem(line: BillLine, lease: EscrowLeaseView) -> str | None:
    parts = (lease.pending_units, lease.paid_units, lease.fee_units, lease.refunded_units)
    signed_for = line.payment.provider if line.payment else ZERO_ADDRESS
    signed = {one.receipt.cumulative_amount for one in line.receipts} | {0}
    checks = (
        (min(parts) >= 0 and sum(parts) == lease.settled_units, f"its parts do not add up to {lease.settled_units}"),
        (lease.lease_id == line.lease_id, "it is that of another lease"),
        (
            lease.provider.lower() == signed_for.lower(),
            f"it pays {lease.provider}, and the receipts are signed for {signed_for}",
        ),
        (lease.settled_units in signed, f"no receipt says the {lease.settled_units} that were settled"),
        (lease.settled_units <= line.charge_units, f"more was settled than the {line.charge_units} that are charged"),
        (
            lease.fee_units <= (lease.paid_units + lease.fee_units) * FEE_BPS_MAX // BPS_WHOLE,
            "its fee is above what any contract of this kind takes",
        ),
    )
    why = next((words for is_true, words in checks if not is_true), None)
    return f"the contract's account of lease {lease.lease_id}: {why}" if why else None


def _sum_problem(bill: BillView, held: EscrowView) -> str | None:
    settled = sum(lease.settled_units for lease in held.leases)
    if settled != held.settled_units:
        return f"the leases settled {settled}, and the hold says {held.settled_units}"
    return None


def _hold_problem(bill: BillView, held: EscrowView) -> str | None:
    is_in_contract = held.state in {"open", "closed"}
    if bill.hold_units != (held.held_units if is_in_contract else 0):
        return f"the bill's hold of {bill.hold_units} is not the contract's of {held.held_units}"
    if held.state == "closed" and held.settled_units + held.refunded_units != held.held_units:
        return "what was settled and what went back to the wallet do not add up to the hold"
    if bill.released_units != held.refunded_units:
        return f"{bill.released_units} are said to be given back, and the contract gave {held.refunded_units}"
    return None


def _fee_problem(bill: BillView, held: EscrowView) -> str | None:
    fee = sum(lease.fee_units for lease in held.leases)
    return None if bill.fee_units == fee else f"the fee is {bill.fee_units}, and the contract took {fee}"


_HOLD: Final[tuple[Callable[[BillView, EscrowView], str | None], ...]] = (_sum_problem, _hold_problem, _fee_problem)
