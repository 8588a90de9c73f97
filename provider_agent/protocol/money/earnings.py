"""What a node's provider has earned, and what open leases have reached."""

from __future__ import annotations

from provider_agent.protocol.message import Message


class Earnings(Message):
    """GET /api/agent/v1/earnings: the provider's part, after the marketplace's fee. Days are UTC's."""

    today_usd_micros: int
    week_usd_micros: int  # the last seven days, today among them
    open_usd_micros: int  # of leases that still run: signed by the node and seen by the server
    today_leases: int
    week_leases: int
    open_leases: int
    fee_bps: int
