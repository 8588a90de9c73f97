"""What is appended to a lease by offset or sequence: logs, events, receipts."""

from __future__ import annotations

from pydantic import Field

from provider_agent.protocol.limits import RECEIPTS_PER_APPEND_MAX
from provider_agent.protocol.message import Message
from provider_agent.protocol.money.receipts import SignedReceipt


class AppendResponse(Message):
    """`offset`: the number of bytes that the server has. A gap is refused with 409 and the same field."""

    offset: int


class ReceiptAppend(Message):
    """POST /api/agent/v1/leases/{lease_id}/receipts"""

    receipts: list[SignedReceipt] = Field(min_length=1, max_length=RECEIPTS_PER_APPEND_MAX)


class ReceiptAck(Message):
    """`seq`: the newest receipt that the server has accepted."""

    seq: int
