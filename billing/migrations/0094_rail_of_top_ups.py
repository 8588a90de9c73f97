"""By which rail a customer pays in; until now there were two, and is_fake told them apart."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0093_digest_of_parts")]

    operations = [
        migrations.AddField("topup", "rail", models.CharField(default="stripe", db_default="stripe", max_length=16)),
    ]
