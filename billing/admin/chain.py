"""The operator's view of chains: what was seen, what was sent, what is held there. Nothing is changed by a form."""

from __future__ import annotations

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html

from billing.chain.contract.challenges import evidence_of
from billing.models import (
    ChainBlock,
    ChainEvent,
    ChainTransaction,
    ContractTerms,
    EndRecord,
    EscrowClaim,
    EscrowContract,
    EscrowHold,
    EscrowLease,
    PayoutEntry,
    PayoutRoot,
    ReceiptKey,
    Signer,
    StakeSlash,
)
from marketplace.foundation.admin import ReadOnlyAdmin


@admin.register(EscrowContract)
class EscrowContractAdmin(ReadOnlyAdmin):
    list_display = ["asset", "chain_id", "address", "scanned_block", "registered_at"]


@admin.register(ChainBlock)
class ChainBlockAdmin(ReadOnlyAdmin):
    list_display = ["number", "chain_id", "state", "hash", "mined_at"]
    list_filter = ["chain_id", "state"]
    search_fields = ["hash"]


@admin.register(ChainEvent)
class ChainEventAdmin(ReadOnlyAdmin):
    list_display = ["name", "tx_hash", "log_index", "contract", "processed_at", "attempts", "last_error"]
    list_filter = ["name"]
    search_fields = ["tx_hash"]


@admin.register(ChainTransaction)
class ChainTransactionAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "purpose", "signer", "nonce", "state", "hash", "gas_cost", "last_error"]
    list_filter = ["state", "purpose", "chain_id"]
    search_fields = ["hash", "business_key"]


@admin.register(PayoutRoot)
class PayoutRootAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "contract", "root", "total", "state", "active_at"]
    list_filter = ["state"]


@admin.register(PayoutEntry)
class PayoutEntryAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "wallet", "amount", "cumulative", "provider_id", "payout_id", "claimed_at"]
    search_fields = ["wallet", "payout_id", "provider_id"]


@admin.register(EscrowHold)
class EscrowHoldAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "id", "customer", "amount", "settled", "state", "reason"]
    list_filter = ["state"]
    search_fields = ["id", "customer"]


@admin.register(EscrowLease)
class EscrowLeaseAdmin(ReadOnlyAdmin):
    list_display = ["id", "provider", "pending", "paid", "fee", "refunded", "release_at", "is_challenged"]
    list_filter = ["is_challenged"]
    search_fields = ["=id", "provider"]
    readonly_fields = ["evidence_hash", "end_record", "receipts", "to_decide"]

    @admin.display(description="evidence")
    def evidence_hash(self, lease: EscrowLease) -> str:
        return evidence_of(lease) or "-"

    @admin.display(description="how it ended")
    def end_record(self, lease: EscrowLease) -> str:
        end = EndRecord.objects.filter(lease_id=lease.pk).first()
        if end is None:
            return "-"
        return format_html('<a href="{}">{}</a>', reverse("admin:billing_endrecord_change", args=[end.pk]), end)

    @admin.display
    def receipts(self, lease: EscrowLease) -> str:
        url = reverse("admin:billing_usagereceipt_changelist")
        return format_html('<a href="{}?q={}">receipts of this lease</a>', url, lease.pk)

    @admin.display(description="to decide it")
    def to_decide(self, lease: EscrowLease) -> str:
        """The key is a person's or a multisig's, and never the web server's: the page shows the command."""
        if not lease.is_challenged:
            return "Nothing is challenged."
        return f"souk chain resolve {lease.pk} --to-provider AMOUNT (with --print for a multisig)"


@admin.register(StakeSlash)
class StakeSlashAdmin(ReadOnlyAdmin):
    list_display = [
        "created_at",
        "offence",
        "contract",
        "wallet",
        "wanted",
        "slashed",
        "compensated",
        "state",
        "reason",
    ]
    list_filter = ["state", "contract"]
    search_fields = ["=offence__id", "wallet"]


@admin.register(EscrowClaim)
class EscrowClaimAdmin(ReadOnlyAdmin):
    list_display = ["lease_id", "seq", "amount", "provider", "hold", "transaction", "created_at"]
    list_select_related = ["hold", "transaction"]
    search_fields = ["lease_id", "provider"]


@admin.register(ReceiptKey)
class ReceiptKeyAdmin(ReadOnlyAdmin):
    list_display = ["provider", "receipt_key", "contract", "not_after"]
    list_select_related = ["contract"]
    search_fields = ["provider", "receipt_key"]


@admin.register(ContractTerms)
class ContractTermsAdmin(ReadOnlyAdmin):
    list_display = ["contract", "challenge_seconds", "grace_seconds", "dispute_seconds", "fee_bps"]
    list_select_related = ["contract"]


@admin.register(Signer)
class SignerAdmin(ReadOnlyAdmin):
    list_display = ["address", "chain_id", "next_nonce"]
