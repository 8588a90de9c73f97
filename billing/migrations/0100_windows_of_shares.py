"""Each provider's pay in a settlement has a challenge window of its own.

The function with one window for all stays for processes of the version before: it has fewer arguments.
"""

from django.db import migrations

from billing.functions import install


class Migration(migrations.Migration):
    dependencies = [("billing", "0099_transfers_by_reference")]

    operations = [install("settle_job")]
