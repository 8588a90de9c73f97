from django.db import migrations, models


class Migration(migrations.Migration):
    """A node without isolation takes its own organisation's jobs only, until its provider says otherwise."""

    dependencies = [("nodes", "0011_newest_change")]

    operations = [
        migrations.AddField(
            model_name="node", name="allows_strangers", field=models.BooleanField(db_default=False, default=False)
        ),
    ]
