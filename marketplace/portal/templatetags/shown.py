"""`{% load shown %}`: the masthead of every page, and figures as people read them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from django import template

from marketplace.portal.amounts import dollars, price_text
from marketplace.portal.navigation import links_of

register = template.Library()

SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@register.inclusion_tag("portal/masthead.html", takes_context=True)
def masthead(context: template.Context) -> dict[str, Any]:
    """Where the visitor may go, in whose name they act, and the way out. `here`: the page's address, if not its own."""
    request, visitor = context["request"], context.get("visitor")
    own = request.get_full_path() if request.method == "GET" else ""
    return {
        "here": context.get("here") or own,
        "request": request,
        "csrf_token": context.get("csrf_token"),
        "visitor": visitor,
        "links": links_of(visitor, request.path),
    }


@register.filter
def usd(micros: object) -> str:
    """$1.25; $0.000123; a dash for what is not known. Of a variable that is not there Django gives a filter ""."""
    return dollars(int(micros)) if isinstance(micros, int | Decimal) else "–"


@register.filter
def hourly(micros: object) -> str:
    """$0.35, with as many digits as a small price needs; a dash as above."""
    return price_text(int(micros)) if isinstance(micros, int | Decimal) else "–"


@register.filter
def span(length: float | timedelta | None) -> str:
    """2 h 5 min: the two largest units of a length of time, in seconds or as a timedelta."""
    if length is None:
        return "–"
    left = int(length.total_seconds() if isinstance(length, timedelta) else length)
    parts: list[str] = []
    for seconds, unit in SPANS:
        count, left = divmod(left, seconds)
        if count or (parts and len(parts) < 2):
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts)) or "0 s"


@register.filter
def spoken(word: str) -> str:
    """`node_lost` as "node lost"."""
    return str(word).replace("_", " ")


@register.filter
def less(count: int, taken: int) -> int:
    """What is left of a count; never below 0."""
    return max(0, count - taken)
