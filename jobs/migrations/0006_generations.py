"""Gangs whose lost nodes are replaced: one attempt, another generation."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0002_rules'),
        ('billing', '0002_rules'),
        ('jobs', '0005_job_inputs'),
        ('nodes', '0002_rules'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='artifact',
            name='one_artifact_per_attempt_and_step',
        ),
        migrations.RemoveConstraint(
            model_name='lease',
            name='one_lease_per_rank',
        ),
        migrations.AddField(
            model_name='artifact',
            name='generation',
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='attempt',
            name='began_from',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='jobs.artifact'),
        ),
        migrations.AddField(
            model_name='attempt',
            name='broken_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='attempt',
            name='generation',
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='lease',
            name='follows_generations',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name='lease',
            name='replaced_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='lease',
            name='unpaid',
            field=models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list),
        ),
        migrations.AddConstraint(
            model_name='artifact',
            constraint=models.UniqueConstraint(condition=models.Q(('attempt__isnull', False)), fields=('attempt', 'kind', 'step', 'generation'), name='one_artifact_per_attempt_and_step', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='lease',
            constraint=models.UniqueConstraint(condition=models.Q(('replaced_at', None)), fields=('attempt', 'node_rank'), name='one_lease_per_rank'),
        ),
    ]
