"""The marketplace from Python, documents and payments by card: invoices, disputes, refunds, automatic top-ups."""

from __future__ import annotations

from itertools import islice
from typing import IO, Any
from uuid import UUID

from jobs.client.sdk_account import Account
from jobs.wire.documents import AttachmentView, DisputeView, InvoiceView
from jobs.wire.topups import AutoTopUpView, RefundView, TopUpView


class Payments(Account):
    """The part of `Souk` that pays in by card, has it back, and argues about what was charged."""

    def invoices(self) -> list[InvoiceView]:
        """All of the organisation's, newest first."""
        return [InvoiceView.model_validate(row) for row in self.transport.get("/invoices")]

    def save_invoice(self, invoice_id: UUID, *, format: str, into: IO[bytes]) -> int:
        """One invoice as `csv` or `pdf`; how many bytes that were."""
        return self.transport.save(f"/invoices/{invoice_id}/{format}", into)

    def disputes(self, *, limit: int | None = None) -> list[DisputeView]:
        """Disputes of either side, newest first."""
        return list(islice(self.all_of("/disputes", DisputeView), limit))

    def open_dispute(self, lease_id: UUID, text: str, attachments: list[AttachmentView]) -> DisputeView:
        """Contest what a lease cost, while its challenge window is open."""
        return self._dispute("/disputes", {"lease_id": str(lease_id), **_statement(text, attachments)})

    def answer_dispute(self, dispute_id: UUID, text: str, attachments: list[AttachmentView]) -> DisputeView:
        """The provider's answer, once."""
        return self._dispute(f"/disputes/{dispute_id}/answer", _statement(text, attachments))

    def withdraw_dispute(self, dispute_id: UUID) -> DisputeView:
        """The customer's word that nothing is contested any more: the provider is paid."""
        return self._dispute(f"/disputes/{dispute_id}/withdraw", {})

    def top_ups(self, *, limit: int | None = None) -> list[TopUpView]:
        """Payments by card, newest first."""
        return list(islice(self.all_of("/top-ups", TopUpView), limit))

    def refunds(self, top_up_id: UUID) -> list[RefundView]:
        """What of one top-up was sent back."""
        return [RefundView.model_validate(row) for row in self.transport.get(f"/top-ups/{top_up_id}/refunds")]

    def refund(self, top_up_id: UUID, *, usd_micros: int | None = None) -> RefundView:
        """Send unspent balance back to the card; without an amount all that is left of the top-up."""
        body = {} if usd_micros is None else {"amount_usd_micros": str(usd_micros)}
        return RefundView.model_validate(self.transport.post(f"/top-ups/{top_up_id}/refunds", body))

    def auto_top_up(self) -> AutoTopUpView:
        """When the card is charged by itself; 404 where it is not."""
        return AutoTopUpView.model_validate(self.transport.get("/auto-top-up"))

    def set_auto_top_up(
        self, *, threshold_usd_micros: int, amount_usd_micros: int, monthly_max_usd_micros: int, is_enabled: bool = True
    ) -> AutoTopUpView:
        """Set the rule as it shall be; this ends a pause."""
        body = {
            "threshold_usd_micros": str(threshold_usd_micros),
            "amount_usd_micros": str(amount_usd_micros),
            "monthly_max_usd_micros": str(monthly_max_usd_micros),
            "is_enabled": is_enabled,
        }
        return AutoTopUpView.model_validate(self.transport.put("/auto-top-up", body))

    def _dispute(self, path: str, body: dict[str, Any]) -> DisputeView:
        return DisputeView.model_validate(self.transport.post(path, body))


def _statement(text: str, attachments: list[AttachmentView]) -> dict[str, Any]:
    return {"text": text, "attachments": [each.model_dump() for each in attachments]}
