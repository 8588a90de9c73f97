"""Money: one double-entry ledger, holds, metering from signed receipts, settlement.

deposits.credit -> holds.place_hold -> metering.accept_receipts -> settlement.settle_job -> settlement.release_pending

Whatever moves money does so through `ledger.post`. Owners, jobs and leases are known by their ids, and by nothing else.
"""
