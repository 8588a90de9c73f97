"""What was kept of people beside their account: the events' objects in full, addresses as names of who did something.

From now on events keep ids only, and who did something is `<organisation>:<user>`, which erasing a user makes nobody's.
"""

from __future__ import annotations

from typing import Any, Final

from django.db import migrations
from django.db.models import F, Value
from django.db.models.functions import Replace

ROWS_PER_CHUNK: Final = 500
NAMED: Final = ("id", "object", "payment_intent", "customer", "charge")
RULE: Final = "rule of "


def trim_events(apps: Any, schema_editor: Any) -> None:
    """Of what an event was about, only what handlers look up."""
    events = apps.get_model("billing", "StripeEvent")
    for event in events.objects.only("pk", "payload").iterator(chunk_size=ROWS_PER_CHUNK):
        named = (event.payload.get("data") or {}).get("object") or {}
        kept = {name: _id_of(named[name]) for name in NAMED if named.get(name)}
        events.objects.filter(pk=event.pk).update(payload={"data": {"object": kept}})


def name_by_id(apps: Any, schema_editor: Any) -> None:
    """An address becomes its user's id; one that is nobody's any more becomes nobody."""
    users = apps.get_model("accounts", "User").objects
    owners = {"TopUp": "owner_id", "AutoTopUp": "owner_id", "TopUpRefund": "top_up__owner_id"}
    for name, owner in owners.items():
        rows = apps.get_model("billing", name).objects
        found = rows.filter(actor__contains="@").values_list("actor", owner).distinct()
        for actor, owner_id in list(found):
            email = actor.removeprefix(RULE)
            user_id = users.filter(email=email).values_list("pk", flat=True).first() or "erased"
            new = f"{owner_id}:{user_id}"
            rows.filter(actor=actor, **{owner: owner_id}).update(actor=new if email == actor else f"{RULE}{new}"[:120])
            if name == "TopUp":
                disputes = apps.get_model("billing", "CardDispute").objects.filter(top_up__owner_id=owner_id)
                disputes.update(evidence=Replace(F("evidence"), Value(email), Value(new)))
    for event in apps.get_model("foundation", "Event").objects.filter(actor__startswith=RULE, actor__contains="@"):
        user_id = users.filter(email=event.actor.removeprefix(RULE)).values_list("pk", flat=True).first() or "erased"
        type(event).objects.filter(pk=event.pk).update(actor=f"{RULE}{user_id}")
    apps.get_model("billing", "ConnectAccount").objects.exclude(stripe_id=None).update(email="")


def _id_of(value: Any) -> str:
    return str(value.get("id") or "") if isinstance(value, dict) else str(value)


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0064_stake_slash_states"),
        ("accounts", "0001_initial"),
        ("foundation", "0002_state_edges"),
    ]

    operations = [
        migrations.RunPython(trim_events, migrations.RunPython.noop),
        migrations.RunPython(name_by_id, migrations.RunPython.noop),
    ]
