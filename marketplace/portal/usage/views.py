"""/usage: what models were used, by day, key, model or endpoint, as a page and as CSV.

The sums are those of GET /api/v1/usage, and so are the parameters; this adds words, bars and nothing else.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import render
from pydantic import ValidationError

from billing.payouts.statement_formats import decimal_text, safe_text
from jobs.endpoints.usage_views import show_usage
from jobs.wire.usage import DAY_FIRST, DAY_LAST, UsageLine, UsageQuery, UsageView
from marketplace.accounts.scopes import Scope
from marketplace.foundation.errors import BadRequest
from marketplace.portal.amounts import dollars
from marketplace.portal.visitors import Visitor, organisation_of, page

SEE: Final = "seeing what an organisation used"
USD_DECIMALS: Final = 6
BAR_LENGTH: Final = 1_000  # of the longest
FURTHER: Final = "all further"  # what is beyond LINES_MAX, so that the listed lines still add up

GROUPS: Final = {"day": "Day", "key": "Key", "model": "Model", "endpoint": "Endpoint"}
SIDES: Final = {"caller": "What we called", "owner": "What others called of ours"}
_SUMS: Final = ("requests", "failed", "input_tokens", "cached_tokens", "output_tokens", "cost_usd_micros")
_A_DAY: Final = f"has to be a day from {DAY_FIRST} to {DAY_LAST}, such as 2026-11-01."
_MISTAKES: Final = {
    "group": f"?group= has to be one of {', '.join(GROUPS)}.",
    "side": f"?side= has to be one of {', '.join(SIDES)}.",
    "from": f"?from= {_A_DAY}",
    "to": f"?to= {_A_DAY}",
}
_UNKNOWN: Final = "This page can be asked for group, side, from and to, and for nothing else."


@dataclass(frozen=True)
class Row:
    """A line as the table writes it; `bar` is its share of the largest, of BAR_LENGTH."""

    group: str
    name: str
    numbers: list[tuple[str, str]]  # heading, number
    cost: str
    bar: int


@page("GET")
def usage_page(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """Sums of the visitor's organisation; a question that has no answer gets a sentence, and 400."""
    context: dict[str, Any] = {"visitor": visitor, "groups": GROUPS, "sides": SIDES}
    if visitor.organisation is None:
        return render(request, "portal/usage/usage.html", context)
    organisation = organisation_of(visitor, Scope.BILLING_READ, SEE)
    try:
        view = show_usage(organisation, _query(request.GET))
    except BadRequest as error:
        # The form keeps the request, so that it can be corrected.
        return render(
            request, "portal/usage/usage.html", context | {"asked": request.GET.dict(), "error": error}, status=400
        )
    asked = {"group": view.group, "side": view.side, "from": str(view.since), "to": str(view.until)}
    context |= {"asked": asked, "here": f"{request.path}?{urlencode(asked)}"}
    return render(request, "portal/usage/usage.html", context | _shown(view, urlencode(asked)))


@page("GET")
def usage_csv(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """The lines of the same question, for a spreadsheet; they add up to the page's total."""
    view = show_usage(organisation_of(visitor, Scope.BILLING_READ, SEE), _query(request.GET))
    name = f"souk-usage-{view.side}-by-{view.group}-{view.since}-{view.until}.csv"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(_csv(view), content_type="text/csv; charset=utf-8", headers=headers)


def _query(given: QueryDict) -> UsageQuery:
    """What was asked; a field of the form that was left empty counts as left out. Raises BadRequest."""
    try:
        return UsageQuery.model_validate({name: value for name, value in given.dict().items() if value})
    except ValidationError as error:
        fields = [str(each["loc"][0]) for each in error.errors(include_input=False)]
    # Only our own text: whatever is in an address could come from somebody else.
    raise BadRequest(" ".join(dict.fromkeys(_MISTAKES.get(field, _UNKNOWN) for field in fields)))


def _shown(view: UsageView, query: str) -> dict[str, Any]:
    """What the template writes of an answer."""
    lines = _whole(view)
    measure = "cost_usd_micros" if view.total.cost_usd_micros else "output_tokens"
    longest = max((getattr(each, measure) for each in view.lines), default=0) or 1
    return {
        "view": view,
        "query": query,
        "rows": [_row(each, BAR_LENGTH * min(getattr(each, measure), longest) // longest) for each in lines],
        "total": _row(view.total, 0),
        "paid": dollars(view.paid_usd_micros),
        "due": dollars(view.due_usd_micros),
        "bar_length": BAR_LENGTH,
        "has_costs": measure == "cost_usd_micros",
        "heading": GROUPS[view.group],
        "further": FURTHER,
    }


def _whole(view: UsageView) -> list[UsageLine]:
    """Lines that add up to the total: where not all are listed, the last one is the sum of the others."""
    if view.is_complete:
        return view.lines
    rest = {name: getattr(view.total, name) - sum(getattr(each, name) for each in view.lines) for name in _SUMS}
    return [*view.lines, UsageLine(group="", name=FURTHER, **rest)]


def _row(line: UsageLine, bar: int) -> Row:
    numbers = {
        "Requests": line.requests,
        "Failed": line.failed,
        "Input tokens": line.input_tokens,
        "Cached": line.cached_tokens,
        "Output tokens": line.output_tokens,
    }
    texts = [(heading, f"{number:,}") for heading, number in numbers.items()]
    return Row(line.group, line.name, texts, dollars(line.cost_usd_micros), bar)


def _csv(view: UsageView) -> str:
    """A line each, in exact dollars. Names are people's: none of them may become a formula."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([view.group, "name", *_SUMS[:-1], "cost_usd"])
    for line in _whole(view):
        counts = [getattr(line, name) for name in _SUMS[:-1]]
        cost = decimal_text(line.cost_usd_micros, USD_DECIMALS)
        writer.writerow([safe_text(line.group), safe_text(line.name), *counts, cost])
    return text.getvalue()
