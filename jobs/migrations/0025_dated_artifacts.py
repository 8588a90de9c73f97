"""Artifacts of ended jobs have a date until which they are kept; one of them is for what nobody pays for."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0024_condemned_checkpoints'),
    ]

    operations = [
        migrations.AddField(
            model_name='artifact',
            name='kept_until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='artifact',
            name='unpaid_until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='artifact',
            name='warned_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name='artifact',
            index=models.Index(condition=models.Q(('state', 'complete')), fields=['kept_until'], name='artifact_kept_until'),
        ),
        migrations.AddIndex(
            model_name='artifact',
            index=models.Index(condition=models.Q(('state', 'complete'), ('unpaid_until__isnull', False)), fields=['unpaid_until'], name='artifact_unpaid_until'),
        ),
    ]
