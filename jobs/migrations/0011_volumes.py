"""Volumes of organisations, and their versions."""

import django.db.models.deletion
import marketplace.foundation.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0002_rules'),
        ('jobs', '0010_copy_checks'),
    ]

    operations = [
        migrations.CreateModel(
            name='Volume',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=63)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='volumes', to='accounts.organisation')),
            ],
        ),
        migrations.CreateModel(
            name='VolumeVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('source', models.CharField(blank=True, default='', max_length=200)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('superseded_at', models.DateTimeField(blank=True, null=True)),
                ('artifact', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='volume_versions', to='jobs.artifact')),
                ('volume', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='jobs.volume')),
            ],
        ),
        migrations.AddConstraint(
            model_name='volume',
            constraint=models.UniqueConstraint(fields=('organisation', 'name'), name='one_volume_per_name'),
        ),
        migrations.AddIndex(
            model_name='volumeversion',
            index=models.Index(condition=models.Q(('superseded_at__isnull', False)), fields=['superseded_at'], name='volume_version_superseded'),
        ),
        migrations.AddConstraint(
            model_name='volumeversion',
            constraint=models.UniqueConstraint(fields=('volume', 'number'), name='one_version_per_number'),
        ),
        migrations.AddConstraint(
            model_name='volumeversion',
            constraint=models.UniqueConstraint(condition=models.Q(('superseded_at__isnull', True)), fields=('volume',), name='one_newest_version_per_volume'),
        ),
        migrations.AddConstraint(
            model_name='volumeversion',
            constraint=models.CheckConstraint(condition=models.Q(('number__gte', 1)), name='version_numbers_begin_at_one'),
        ),
    ]
