"""The page on which anybody sees whether everything is there that people are owed, and how to check it."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import cache_control

from billing.models import SolvencyReport
from billing.money import format_amount
from billing.solvency.totals import FRESH_SECONDS, cached_solvency

OWN = "the platform's own"
NAMES = {
    "stripe_balance": "at Stripe",
    "stripe_in_transit": "at Stripe, kept in reserve",
    "chain_escrow": "in the escrow contract",
    "chain_hot_wallet": "in the platform's wallet",
    "operator_cash": "in the operator's bank",
}


@cache_control(public=True, max_age=FRESH_SECONDS)
def solvency_page(request: HttpRequest) -> HttpResponse:
    """Figures, the time they are of, the newest sealed root, and what to do with it; everybody may see it."""
    report = cached_solvency()
    assets = [_asset(one) for one in report["assets"]]
    context = {"report": report, "assets": assets, "sealed": _sealed(), "api_url": settings.SOUK_API_URL}
    return render(request, "portal/solvency/solvency.html", context)


def _sealed() -> dict[str, Any] | None:
    """The newest sealed report, of which each customer can prove its own part; None before the first."""
    newest = SolvencyReport.objects.order_by("-number").defer("secret").first()
    if newest is None:
        return None
    trees = [
        {
            "code": one["asset"],
            "accounts": one["leaves"],
            "owed": format_amount(int(one["owed"]), code=one["asset"], scale=one["scale"]),
            "root": one["root"],
        }
        for one in newest.body["assets"]
        if one["leaves"]
    ]
    return {"number": newest.number, "at": newest.at, "commitment": newest.commitment, "trees": trees}


def _asset(one: dict[str, Any]) -> dict[str, Any]:
    def show(units: str) -> str:
        return format_amount(int(units), code=one["asset"], scale=one["scale"])

    owed = [
        ("to customers", show(one["owed_to_customers"])),
        ("to providers", show(one["owed_to_providers"])),
        ("in dispute", show(one["in_dispute"])),
        (OWN, show(one["own_total"])),
    ]
    held = [
        {
            "name": NAMES.get(mirror["kind"], mirror["kind"]),
            "amount": show(mirror["ledger"]),
            "outside": None if mirror["outside"] is None else show(mirror["outside"]),
            "outside_at": mirror["outside_at"],
        }
        for mirror in one["mirrors"]
    ]
    return {
        "code": one["asset"],
        "owed": owed,
        "held": held,
        "held_total": show(one["held"]),
        "is_balanced": one["is_balanced"],
        "is_covered": one["is_covered"],
    }
