from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("nodes", "0004_care"),
    ]

    operations = [
        migrations.AddField(
            model_name="node",
            name="fabric_key",
            field=models.CharField(blank=True, max_length=64),
        ),
    ]
