"""Gangs of which a node reported that it lost a peer: their nodes are asked for a beat."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0011_volumes'),
    ]

    operations = [
        migrations.AddField(
            model_name='attempt',
            name='suspected_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
