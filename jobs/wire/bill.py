"""What a job costs, line by line, with the receipts that prove it; and what leases earned their provider.

Every line is in base units of the asset that paid, beside dollars at the price at which its lease was made: that of the
quote, or one that took its place while the job waited. For jobs paid in dollars the two are equal.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from pydantic import Field, model_validator

from jobs.wire.base import Units, Wire
from jobs.wire.job import EscrowLeaseView, EscrowView
from jobs.wire.prices import JobPriceView
from provider_agent.protocol import PaymentTerms, SignedReceipt

BILL_FORMAT: Final = "souk-bill-1"
EARNINGS_FORMAT: Final = "souk-earnings-1"


class PriceView(Wire):
    """What one whole token cost where this price was taken."""

    usd_micros_per_token: Units
    source: str
    observed_at: datetime | None


class ServedCounts(Wire):
    """What a serving lease answered, by the gateways' count and by its agent's, which signed it."""

    requests: int
    input_tokens: int
    output_tokens: int
    agent_requests: int | None = None  # None: it never reported any
    agent_input_tokens: int | None = None
    agent_output_tokens: int | None = None
    agent_seq: int | None = None
    agent_signature: str = ""
    differs: str = ""  # what does, by more than is tolerated: then the pay is held back


class BillLine(Wire):
    """One lease: what its newest receipt says, what is charged, and why the two differ where they do."""

    attempt: int
    lease_id: UUID
    node_name: str
    receipt_address: str  # the key that must have signed
    devices: int
    rate_usd_micros_per_hour: int
    receipts: list[SignedReceipt]
    claimed_ms: int
    observed_ms: int
    billable_ms: int
    claimed_usd_micros: int
    charge_usd_micros: int
    refunded_usd_micros: int  # claimed - charged
    reason: str
    fault: str
    explanation: str
    payment: PaymentTerms | None = None  # chain, contract and parties that the receipts name; None: dollars
    rate_units_per_hour: Units
    cap_units: Units | None = None
    claimed_units: Units
    charge_units: Units
    refunded_units: Units
    is_ended: bool = False  # then the charge is final
    charged_seq: int | None = None  # the receipt that counted when it ended; 0: none had come; None: not kept
    checkpoint_ms: int | None = None  # the meter at the last complete checkpoint, where the rule bills up to there
    # Of what is due by the rule: done again, or spent waiting, as another node of the gang was lost.
    unpaid_ms: int = 0
    price: PriceView | None = None  # by which its rate was made; None: the bill's own
    counts: ServedCounts | None = None  # None: it served nothing

    @model_validator(mode="before")
    @classmethod
    def _dollars_are_their_own_units(cls, body: Any) -> Any:
        return _with_units(body, {"rate_units_per_hour": "rate_usd_micros_per_hour"} | _named(_LINE_AMOUNTS))


class BillView(Wire):
    """GET /api/v1/jobs/{id}/bill: adds up to the charged amount, to the unit."""

    job_id: UUID
    state: str
    is_final: bool
    lines: list[BillLine]
    total_usd_micros: int
    fee_usd_micros: int
    hold_usd_micros: int
    released_usd_micros: int
    settlement: dict[str, Any] | None = None
    parts: list[dict[str, Any]] | None = None  # of a serving job, settled day by day: each; `settlement` is all of them
    asset: str = "USD"
    asset_scale: int = 6
    price: PriceView | None = None  # None: dollars; else the last of `prices`, by which the bill's dollars are reckoned
    prices: list[JobPriceView] | None = None  # the quote's, then each that took its place; None: the quote's alone
    cap_usd_micros: int | None = None
    total_units: Units
    fee_units: Units
    hold_units: Units
    released_units: Units
    fee_bps: int | None = None  # None: not settled
    escrow: EscrowView | None = None  # only in escrow mode: fee, hold and what is released are the contract's

    @model_validator(mode="before")
    @classmethod
    def _dollars_are_their_own_units(cls, body: Any) -> Any:
        return _with_units(body, _named(_BILL_AMOUNTS))


class EarningsLine(BillLine):
    """One lease of the provider's, with its share of the settlement."""

    job_id: UUID
    asset: str
    asset_scale: int
    price: PriceView | None  # None: dollars
    ended_at: datetime
    fee_bps: int | None  # None: not settled yet, and then nothing is paid
    fee_units: Units
    paid_units: Units
    available_from: datetime | None  # when the challenge window closes
    escrow: EscrowLeaseView | None = None  # what the contract settled; where the customer contested it, this counts


class EarningsView(Wire):
    """What a provider's leases earned from `since` until before `until`, by the time at which they ended."""

    provider_id: UUID
    since: datetime
    until: datetime
    lines: list[EarningsLine]
    paid_units: dict[str, Units]  # asset -> all lines together


class SignedExport(Wire):
    """A bill or earnings with the marketplace's signature: a file that proves itself, without a server.

    `signature` is Ed25519 over the format's name, a newline, and `body` as JSON with sorted keys, no spaces, in ASCII.
    """

    format: Literal["souk-bill-1", "souk-earnings-1"]
    server_public_key: str = Field(pattern=r"^[0-9a-f]{64}$")
    signature: str = Field(pattern=r"^[A-Za-z0-9+/]{85}[AQgw]==$")  # base64 of 64 bytes, in its one form
    body: dict[str, Any]


class SigningKeyView(Wire):
    """GET /api/v1/signing-key: Ed25519."""

    public_key: str  # 64 hex characters
    sha256: str


_LINE_AMOUNTS = ("claimed", "charge", "refunded")
_BILL_AMOUNTS = ("total", "fee", "hold", "released")


def _named(amounts: tuple[str, ...]) -> dict[str, str]:
    return {f"{name}_units": f"{name}_usd_micros" for name in amounts}


def _with_units(body: Any, names: dict[str, str]) -> Any:
    """A bill from before tokens has dollars only."""
    if not isinstance(body, dict):
        return body
    return {units: body[dollars] for units, dollars in names.items() if dollars in body} | body
