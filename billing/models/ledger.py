"""The ledger: assets, accounts, immutable transfers, and the root that seals each day.

The database keeps it true (`billing/migrations/0002_rules.py`, `billing/sql/`): a trigger holds both legs to one asset
and writes the four sums of the accounts, another refuses every change of a transfer, and the CHECKs below forbid
overdrafts.
"""

from __future__ import annotations

from uuid import UUID

from django.db import models
from django.db.models import F, Func, Q, Value

from billing.account_kinds import JOB_ACCOUNT_KINDS, NONNEGATIVE_KINDS, OWNED_KINDS, AccountKind
from billing.fields import AMOUNT_MAX, AmountField, SumField
from billing.money import USD_SCALE, format_amount
from billing.transfer_codes import TransferCode, TransferMode
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id

USD_ASSET_ID = 1
USD_ASSET_CODE = "USD"

__all__ = ["USD_ASSET_CODE", "USD_ASSET_ID", "USD_SCALE", "Account", "Asset", "DailyRoot", "Transfer"]


class Asset(models.Model):
    """What is counted: dollars in millionths, or a token in its base units."""

    class Kind(models.TextChoices):
        FIAT = "fiat"
        ERC20 = "erc20"
        NATIVE = "native"  # a chain's own coin: what its gas is paid in

    id = models.PositiveSmallIntegerField(primary_key=True)
    code = models.CharField(max_length=16, unique=True)
    scale = models.PositiveSmallIntegerField()  # decimal places of the base unit
    kind = models.CharField(max_length=8, choices=Kind.choices)
    chain_id = models.PositiveBigIntegerField(null=True, blank=True)
    contract = models.CharField(max_length=42, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=["fiat", "erc20", "native"]), name="asset_kind_known"),
            models.CheckConstraint(
                condition=Q(kind="fiat", chain_id=None, contract="")
                | (Q(kind="erc20", chain_id__isnull=False) & ~Q(contract=""))
                | Q(kind="native", chain_id__isnull=False, contract=""),
                name="asset_of_a_chain_names_it",
            ),
            models.UniqueConstraint(
                fields=["chain_id", "contract"], condition=Q(chain_id__isnull=False), name="asset_of_a_chain_once"
            ),
        ]

    def __str__(self) -> str:
        return self.code

    def show(self, units: int) -> str:
        """An amount as people write it: "$2.50", "1.5 WETH"."""
        return format_amount(units, code=self.code, scale=self.scale)


class AccountQuerySet(models.QuerySet["Account"]):
    def of(self, owner_id: UUID | None) -> AccountQuerySet:
        """Accounts of one owner; None: the platform's own."""
        return self.filter(owner_id=owner_id)


class Account(models.Model):
    """One owner's money of one kind in one asset. Its sums are the transfers' work: nobody else writes them."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # No foreign key in the database, here and below: it would lock the one row of the dollar for everybody (0013).
    asset = models.ForeignKey(
        Asset, on_delete=models.PROTECT, related_name="accounts", db_constraint=False, db_index=False
    )
    kind = models.CharField(max_length=24, choices=AccountKind.choices)
    owner_id = models.UUIDField(null=True, blank=True)
    job_id = models.UUIDField(null=True, blank=True)
    debits_pending = SumField(default=0, editable=False)
    debits_posted = SumField(default=0, editable=False)
    credits_pending = SumField(default=0, editable=False)
    credits_posted = SumField(default=0, editable=False)
    is_nonnegative = models.BooleanField()
    is_frozen = models.BooleanField(default=False)  # a frozen account takes money in and gives none out
    is_summed = models.BooleanField(default=True)  # False: entries only, rolled up to `rolled_seq`
    rolled_seq = models.PositiveBigIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = AccountQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["owner_id", "kind", "job_id", "asset"], name="account_once", nulls_distinct=False
            ),
            models.CheckConstraint(condition=Q(kind__in=AccountKind.values), name="account_kind_known"),
            models.CheckConstraint(
                condition=Q(debits_pending__gte=0, debits_posted__gte=0, credits_pending__gte=0, credits_posted__gte=0),
                name="account_sums_nonnegative",
            ),
            models.CheckConstraint(
                condition=Q(is_nonnegative=False) | Q(credits_posted__gte=F("debits_posted") + F("debits_pending")),
                name="account_not_overdrawn",
            ),
            models.CheckConstraint(
                condition=Q(is_nonnegative=False) | Q(credits_posted__lte=F("debits_posted") + AMOUNT_MAX),
                name="account_balance_fits",
            ),
            models.CheckConstraint(
                condition=Q(owner_id__isnull=False) | ~Q(kind__in=sorted(OWNED_KINDS)), name="account_has_its_owner"
            ),
            models.CheckConstraint(
                condition=Q(is_nonnegative=True) | ~Q(kind__in=sorted(NONNEGATIVE_KINDS)),
                name="account_of_others_money_nonnegative",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=sorted(JOB_ACCOUNT_KINDS), job_id__isnull=False)
                | (~Q(kind__in=sorted(JOB_ACCOUNT_KINDS)) & Q(job_id=None)),
                name="account_of_a_job_is_its_hold",
            ),
            models.CheckConstraint(
                condition=Q(is_summed=True) | Q(is_nonnegative=False), name="account_without_sum_has_no_floor"
            ),
        ]

    def __str__(self) -> str:
        return " ".join(str(part) for part in (self.kind, self.owner_id, self.job_id) if part)

    @property
    def available(self) -> int:
        """What may still be debited: posted credits minus every debit, pending ones too (0-or-less for mirrors)."""
        return self.credits_posted - self.debits_posted - self.debits_pending


class TransferQuerySet(models.QuerySet["Transfer"]):
    def of(self, owner_id: UUID) -> TransferQuerySet:
        """Transfers that touch an account of this owner."""
        return self.filter(Q(debit__owner_id=owner_id) | Q(credit__owner_id=owner_id))

    def unchained(self) -> TransferQuerySet:
        """Transfers that the hash chain does not cover yet."""
        return self.filter(hash=None)


class Transfer(models.Model):
    """`amount` went from `debit` to `credit`. Never changed, never deleted; only its two hashes are filled in, once."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    group_id = models.UUIDField()  # transfers that were posted together
    # The trigger that moves the sums sees that both legs are accounts of this asset.
    asset = models.ForeignKey(Asset, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False)
    debit = models.ForeignKey(
        Account, on_delete=models.PROTECT, related_name="debits", db_constraint=False, db_index=False
    )
    credit = models.ForeignKey(
        Account, on_delete=models.PROTECT, related_name="credits", db_constraint=False, db_index=False
    )
    amount = AmountField()
    mode = models.CharField(max_length=8, choices=TransferMode.choices, default=TransferMode.SINGLE)
    pending = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="resolutions", db_index=False
    )
    code = models.CharField(max_length=24, choices=TransferCode.choices)
    job_id = models.UUIDField(null=True, blank=True)
    external_ref = models.CharField(max_length=200, blank=True)
    effective_at = models.DateTimeField(default=clock.now)
    created_at = models.DateTimeField(default=clock.now)
    seq = models.BigIntegerField(
        unique=True, editable=False, db_default=Func(Value("billing_transfer_seq"), function="nextval")
    )
    prev_hash = models.CharField(max_length=64, null=True, blank=True, editable=False)  # noqa: DJ001 - NULL: not sealed
    hash = models.CharField(max_length=64, null=True, blank=True, editable=False)  # noqa: DJ001 - NULL: not sealed

    objects = TransferQuerySet.as_manager()

    class Meta:
        ordering = ["-seq"]
        constraints = [
            models.UniqueConstraint(
                fields=["pending"], condition=Q(pending__isnull=False), name="pending_resolved_once"
            ),
            # Of an exchange, the leg into the liquidity of what is sold is there once, whoever sells.
            models.UniqueConstraint(
                fields=["external_ref", "asset", "credit"],
                condition=Q(code=TransferCode.EXCHANGE),
                name="quote_used_once",
            ),
            models.CheckConstraint(condition=Q(amount__gt=0), name="transfer_amount_positive"),
            models.CheckConstraint(condition=Q(amount__lte=AMOUNT_MAX), name="transfer_amount_fits"),
            models.CheckConstraint(condition=~Q(debit=F("credit")), name="transfer_between_two_accounts"),
            models.CheckConstraint(condition=Q(mode__in=TransferMode.values), name="transfer_mode_known"),
            models.CheckConstraint(condition=Q(code__in=TransferCode.values), name="transfer_code_known"),
            models.CheckConstraint(
                condition=Q(mode__in=["post", "void"], pending__isnull=False)
                | Q(mode__in=["single", "pending"], pending=None),
                name="transfer_resolution_names_its_pending",
            ),
            models.CheckConstraint(
                condition=Q(hash=None, prev_hash=None) | Q(hash__isnull=False, prev_hash__isnull=False),
                name="transfer_sealed_whole",
            ),
        ]
        indexes = [
            models.Index(fields=["debit", "seq"], name="transfer_debits"),
            models.Index(fields=["credit", "seq"], name="transfer_credits"),
            models.Index(fields=["job_id"], condition=Q(job_id__isnull=False), name="transfer_of_job"),
            models.Index(fields=["external_ref"], condition=~Q(external_ref=""), name="transfer_by_reference"),
        ]

    def __str__(self) -> str:
        return f"{self.code} {self.amount} ({self.mode})"


class DailyRoot(models.Model):
    """The Merkle root over the hashes of the transfers `first_seq`..`last_seq`: one row publishes a whole day."""

    day = models.DateField(primary_key=True)
    first_seq = models.PositiveBigIntegerField(unique=True)
    last_seq = models.PositiveBigIntegerField(unique=True)
    transfers = models.PositiveBigIntegerField()
    root = models.CharField(max_length=64)
    sealed_at = models.DateTimeField(default=clock.now)
    row_digest = models.CharField(max_length=64, default="", editable=False)  # of all columns: see digest_rows.sql

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(last_seq__gte=F("first_seq")), name="daily_root_range"),
        ]

    def __str__(self) -> str:
        return f"{self.day}: {self.root}"
