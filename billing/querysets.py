"""Questions that are asked of money."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models
from django.db.models import Q

from billing.states import HoldState

if TYPE_CHECKING:
    from billing.models import Account, Hold, SettlementShare, Transfer, UsageReceipt  # noqa: F401 - generic parameters


class AccountQuerySet(models.QuerySet["Account"]):
    def of(self, owner_id: UUID | None) -> AccountQuerySet:
        """Accounts of one owner; None: the platform's own."""
        return self.filter(owner_id=owner_id)


class TransferQuerySet(models.QuerySet["Transfer"]):
    def of(self, owner_id: UUID) -> TransferQuerySet:
        """Transfers that touch an account of this owner."""
        return self.filter(Q(debit__owner_id=owner_id) | Q(credit__owner_id=owner_id))

    def unsealed(self) -> TransferQuerySet:
        """Transfers that the hash chain does not cover yet."""
        return self.filter(hash=None)


class HoldQuerySet(models.QuerySet["Hold"]):
    def open(self) -> HoldQuerySet:
        """Holds whose money is still set aside."""
        return self.filter(state=HoldState.OPEN)


class SettlementShareQuerySet(models.QuerySet["SettlementShare"]):
    def ripe(self, now: datetime) -> SettlementShareQuerySet:
        """Shares whose challenge window is over, that nobody contests and that are not released yet."""
        return self.filter(released_at=None, is_disputed=False, challenge_until__lte=now)


class UsageReceiptQuerySet(models.QuerySet["UsageReceipt"]):
    def of_lease(self, lease_id: UUID) -> UsageReceiptQuerySet:
        """The receipts of one lease, oldest first."""
        return self.filter(lease_id=lease_id).order_by("seq")
