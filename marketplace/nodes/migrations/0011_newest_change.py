from django.db import migrations, models


class Migration(migrations.Migration):
    """When the newest accepted change of a node's standing was signed: a captured older one is refused."""

    dependencies = [("nodes", "0010_moments_within_calendar")]

    operations = [
        migrations.AddField(model_name="node", name="changed_ms", field=models.BigIntegerField(db_default=0, default=0)),
    ]
