"""/api/v1/fake-card/<id>: the page of the fake card, on loopback only, marked FAKE."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from billing.fiat import topups
from billing.fiat.errors import NotOurs
from billing.models import TopUp
from billing.money import format_usd
from billing.rails.fake.payment_rail import FakePayments


@require_http_methods(["GET", "POST"])
def fake_card_page(request: HttpRequest, top_up_id: UUID) -> HttpResponse:
    """Show what would be paid; the button pretends that it was."""
    if not FakePayments.is_on():
        raise Http404
    if request.method == "POST":
        try:
            topups.pay_fake(top_up_id)
        except NotOurs as error:
            raise Http404 from error
        return redirect(request.path)
    top_up = TopUp.objects.filter(pk=top_up_id, is_fake=True).first()
    if top_up is None:
        raise Http404
    shown = {"top_up": top_up, "amount": format_usd(int(top_up.amount))}
    return render(request, "portal/fake_card.html", shown)
