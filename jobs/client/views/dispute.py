"""A dispute for people: what is contested, what both sides said, what was decided."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.client.output import amount
from jobs.wire import AssetView
from jobs.wire.documents import AttachmentView, DisputeView

TIME = "%Y-%m-%d %H:%M"


def dispute_lines(found: DisputeView, known: Sequence[AssetView]) -> list[str]:
    """Its facts, one a line; `known`: the assets that its amounts are in."""

    def show(units: int) -> str:
        return amount(units, found.asset, known)

    lines = [
        f"dispute   {found.id} ({found.state}); you are the {found.side}",
        f"about     {show(found.amount)} of lease {found.lease_id}, job {found.job_id}: frozen until it is decided",
        f"customer  {found.opened_at:{TIME}} UTC: {found.text}",
        *_files(found.attachments),
    ]
    if found.answered_at is not None:
        lines += [f"provider  {found.answered_at:{TIME}} UTC: {found.answer}", *_files(found.answer_attachments)]
    elif found.state == "opened":
        lines.append(f"provider  may answer until {found.answer_until:{TIME}} UTC")
    if found.decide_until is not None and found.closed_at is None:
        lines.append(f"decided   by {found.decide_until:{TIME}} UTC")
    if found.closed_at is not None:
        lines.append(f"closed    {found.closed_at:{TIME}} UTC" + (f": {found.decision}" if found.decision else ""))
    if found.to_customer is not None and found.to_provider is not None:
        lines.append(f"split     {show(found.to_customer)} to the customer, {show(found.to_provider)} to the provider")
    return lines


def _files(attachments: Sequence[AttachmentView]) -> list[str]:
    return [f"          {each.name}  sha256 {each.sha256}" for each in attachments]
