"""The same rows as the ledger's verbs write, by hand: the bare SQL that `benchmarks/ledger.py` compares with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg

HOLD, CHARGE = 1_000_000, 345_678
FEE_BPS = 1_000
FEE = CHARGE * FEE_BPS // 10_000

IS_SETTLED = "SELECT 1 FROM billing_settlement WHERE job_id = %s"
OPEN_JOB = """
    INSERT INTO billing_account (id, asset_id, kind, owner_id, job_id, debits_pending, debits_posted, credits_pending,
        credits_posted, is_nonnegative, is_frozen, is_summed, rolled_seq, created_at)
    VALUES (%s, 1, 'job_hold', %s, %s, 0, 0, 0, 0, true, false, true, 0, %s) ON CONFLICT DO NOTHING"""
LOCK = """
    SELECT id, credits_posted - debits_posted - debits_pending FROM billing_account
    WHERE id = ANY (%s) AND is_summed ORDER BY id FOR NO KEY UPDATE"""
INSERT_HOLD = """
    INSERT INTO billing_hold (id, owner_id, job_id, asset_id, amount, state, created_at)
    VALUES (%s, %s, %s, 1, %s, 'open', %s)"""
INSERT_TRANSFERS = """
    INSERT INTO billing_transfer (id, group_id, asset_id, debit_id, credit_id, amount, mode, code, job_id, external_ref,
        effective_at, created_at)
    SELECT gen_random_uuid(), %s, 1, t.debit, t.credit, t.amount, 'single', t.code, %s, '', %s, %s
    FROM unnest(%s::uuid[], %s::uuid[], %s::numeric[], %s::text[]) AS t (debit, credit, amount, code)"""
INSERT_EVENT = """
    INSERT INTO foundation_event (subject_kind, subject_id, from_state, to_state, reason, actor, data, created_at)
    VALUES ('hold', %s, %s, %s, '', 'system', '{}', %s)"""
LOCK_HOLD = "SELECT id, amount FROM billing_hold WHERE job_id = %s AND state = 'open' FOR NO KEY UPDATE"
INSERT_SETTLEMENT = """
    INSERT INTO billing_settlement (id, job_id, hold_id, owner_id, asset_id, fee_bps, held, charged, fee, paid,
        refunded, challenge_until, created_at)
    VALUES (%s, %s, %s, %s, 1, %s, %s, %s, %s, %s, %s, %s, %s)"""
INSERT_SHARE = """
    INSERT INTO billing_settlementshare (id, settlement_id, lease_id, provider_id, charged, fee, paid, challenge_until)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"""
CLOSE_HOLD = "UPDATE billing_hold SET state = 'captured', closed_at = %s WHERE id = %s"


class Bare:
    """One client with a connection of its own. It has looked up every account before the clock runs."""

    def __init__(self, customer: UUID, providers: Sequence[UUID]) -> None:
        from billing.account_kinds import AccountKind
        from billing.books.chart_of_accounts import AccountName

        self.connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, prepare_threshold=0)
        self.name = AccountName
        self.kind = AccountKind
        self.customer = customer
        self.balance = AccountName(AccountKind.CUSTOMER_AVAILABLE, customer).id
        self.fees = AccountName(AccountKind.FEE_REVENUE).id
        self.cash = AccountName(AccountKind.OPERATOR_CASH).id
        self.targets = {who: AccountName(AccountKind.PROVIDER_PENDING, who).id for who in providers}

    def hold_and_settle(self, provider: UUID) -> None:
        """Two transactions, each sent in one go."""
        job_id, hold_id = uuid4(), uuid4()
        set_aside = self.name(self.kind.JOB_HOLD, self.customer, job_id).id
        self._hold(job_id, hold_id, set_aside)
        self._settle(job_id, hold_id, set_aside, provider)

    def post_batch(self, size: int) -> None:
        """`size` transfers from one account to all providers, in one transaction."""
        now, targets = datetime.now(UTC), list(self.targets.values())
        credits = [targets[number % len(targets)] for number in range(size)]
        with self.connection.transaction(), self.connection.pipeline():
            self.connection.execute(LOCK, [[self.cash, *targets]])
            self._transfers(uuid4(), None, now, [self.cash] * size, credits, [1] * size, ["correction"] * size)

    def _hold(self, job_id: UUID, hold_id: UUID, set_aside: UUID) -> None:
        now, execute = datetime.now(UTC), self.connection.execute
        with self.connection.pipeline(), self.connection.transaction():
            execute(IS_SETTLED, [job_id])
            execute(OPEN_JOB, [set_aside, self.customer, job_id, now])
            execute(LOCK, [[self.balance, set_aside]])
            execute(INSERT_HOLD, [hold_id, self.customer, job_id, HOLD, now])
            self._transfers(hold_id, job_id, now, [self.balance], [set_aside], [HOLD], ["hold"])
            execute(INSERT_EVENT, [hold_id, "", "open", now])

    def _settle(self, job_id: UUID, hold_id: UUID, set_aside: UUID, provider: UUID) -> None:
        now, execute, settlement_id = datetime.now(UTC), self.connection.execute, uuid4()
        until, paid, rest = now + timedelta(hours=1), CHARGE - FEE, HOLD - CHARGE
        credits = [self.targets[provider], self.fees, self.balance]
        with self.connection.pipeline(), self.connection.transaction():
            execute(LOCK_HOLD, [job_id])
            execute(LOCK, [[set_aside, *credits]])
            execute(
                INSERT_SETTLEMENT,
                [settlement_id, job_id, hold_id, self.customer, FEE_BPS, HOLD, CHARGE, FEE, paid, rest, until, now],
            )
            execute(INSERT_SHARE, [uuid4(), settlement_id, uuid4(), provider, CHARGE, FEE, paid, until])
            codes = ["provider_pay", "platform_fee", "hold_rest"]
            self._transfers(settlement_id, job_id, now, [set_aside] * 3, credits, [paid, FEE, rest], codes)
            execute(CLOSE_HOLD, [now, hold_id])
            execute(INSERT_EVENT, [hold_id, "open", "captured", now])

    def _transfers(
        self,
        group_id: UUID,
        job_id: UUID | None,
        now: datetime,
        debits: list[UUID],
        credits: list[UUID],
        amounts: list[int],
        codes: list[str],
    ) -> None:
        self.connection.execute(INSERT_TRANSFERS, [group_id, job_id, now, now, debits, credits, amounts, codes])
