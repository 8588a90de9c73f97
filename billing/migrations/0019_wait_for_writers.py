"""The seal's wait for writers in flight, as a function of the tables' owner."""

from django.db import migrations

from billing.functions import install


class Migration(migrations.Migration):
    dependencies = [("billing", "0018_roll_up")]

    operations = [install("wait_for_writers")]
