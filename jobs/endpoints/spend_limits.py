"""What calls of other organisations' endpoints count against spend limits, and how much the limits still let them cost.

used_by_calls   for a limit: what this month's calls cost, and what gateways may let be spent right now
CallBounds      for key grants: what each organisation and member may still be given
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db.models import F, Q, Sum

from billing.charging import limits
from jobs.models import EndpointKey, KeySlice, UsageDay
from marketplace.foundation import clock

MICROS_MAX: Final = 1 << 62  # what nobody limits


def used_by_calls(owner_id: UUID, member_id: UUID | None, start: datetime, end: datetime) -> int:
    """In micro-USD, by the keys of one organisation, or by those that one member made there.

    Slices of gateways count until they expire: what is promised cannot be promised to a job as well.
    """
    days = UsageDay.objects.filter(organisation_id=owner_id, day__gte=start.date(), day__lt=end.date())
    slices = KeySlice.objects.filter(organisation_id=owner_id, expires_at__gt=clock.now())
    if member_id is not None:
        made = EndpointKey.objects.filter(organisation_id=owner_id, made_by_id=member_id)
        days, slices = days.filter(key_id__in=made.values("pk")), slices.filter(key__made_by_id=member_id)
    spent = days.exclude(owner_id=F("organisation_id")).aggregate(sum=Sum("cost_usd_micros"))["sum"]
    return int(spent or 0) + int(slices.aggregate(sum=Sum("foreign_usd_micros"))["sum"] or 0)


@dataclass
class CallBounds:
    """How much more may be given out for calls of others' endpoints, by organisation and by member."""

    left: dict[limits.Whose, int]

    @classmethod
    def of(cls, gateway_id: UUID, keys: Collection[EndpointKey]) -> CallBounds:
        """For the keys of one gateway, whose present slices are about to be replaced, and so count for nothing."""
        members = {key.made_by_id for key in keys if key.made_by_id is not None}
        organisations = {key.organisation_id for key in keys}
        return cls(limits.bounds(organisations, members, returned=lambda: _replaced(gateway_id, keys)))

    def least(self, key: EndpointKey) -> int:
        """The most that this key may be given now; MICROS_MAX where nothing limits it."""
        return min((self.left[whose] for whose in _who_pays(key) if whose in self.left), default=MICROS_MAX)

    def take(self, key: EndpointKey, amount: int) -> None:
        """So much was given to it."""
        for whose in _who_pays(key):
            if whose in self.left:
                self.left[whose] -= amount


def _replaced(gateway_id: UUID, keys: Collection[EndpointKey]) -> Counter[limits.Whose]:
    """The present slices of these keys at this gateway."""
    own = Q(gateway_id=gateway_id, key__in=[key.pk for key in keys], expires_at__gt=clock.now())
    found: Counter[limits.Whose] = Counter()
    rows = KeySlice.objects.filter(own).values_list("organisation_id", "key__made_by_id", "foreign_usd_micros")
    for organisation_id, member_id, amount in rows:
        for whose in {(organisation_id, None), (organisation_id, member_id)}:
            found[whose] += amount
    return found


def _who_pays(key: EndpointKey) -> set[limits.Whose]:
    return {(key.organisation_id, None), (key.organisation_id, key.made_by_id)}
