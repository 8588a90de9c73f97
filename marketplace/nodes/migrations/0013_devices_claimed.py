from typing import Any

from django.db import migrations, models

NOBODYS = ("not in the machine any more", "another node sells it")


def claim(apps: Any, schema_editor: Any) -> None:
    """A GPU is of the node that rents it out; one with a fault is of its node where nobody else has enrolled it."""
    devices = apps.get_model("nodes", "Device").objects
    devices.filter(is_healthy=False).update(is_claimed=False)
    gpus = devices.filter(kind="gpu")
    taken = set(gpus.filter(is_claimed=True).values_list("uuid", flat=True))
    faulty = gpus.filter(is_claimed=False).exclude(fault__in=NOBODYS).exclude(node__state="retired")
    for device_id, uuid in faulty.order_by("id").values_list("id", "uuid"):
        if uuid not in taken:
            taken.add(uuid)
            devices.filter(pk=device_id).update(is_claimed=True)


class Migration(migrations.Migration):
    """A device with a fault keeps its claim to its UUID."""

    dependencies = [("nodes", "0012_allows_strangers")]

    operations = [
        migrations.AddField(
            model_name="device", name="is_claimed", field=models.BooleanField(db_default=True, default=True)
        ),
        migrations.RunPython(claim, migrations.RunPython.noop),
    ]
