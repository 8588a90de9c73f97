"""The periods of contracts are what the chain says: they are read again, with the one that 0105 added."""

from typing import Any

from django.db import migrations


def forget_terms(apps: Any, schema_editor: Any) -> None:
    apps.get_model("billing", "ContractTerms").objects.all().delete()


class Migration(migrations.Migration):
    dependencies = [("billing", "0105_escrow_by_customer_and_clock")]

    operations = [migrations.RunPython(forget_terms, migrations.RunPython.noop)]
