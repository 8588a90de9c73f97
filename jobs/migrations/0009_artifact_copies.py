"""Which artifacts have a second copy, where, and how often that was tried."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0008_plan_checks'),
    ]

    operations = [
        migrations.CreateModel(
            name='ArtifactCopy',
            fields=[
                ('artifact', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='copy', serialize=False, to='jobs.artifact')),
                ('store', models.CharField(max_length=500)),
                ('copied_at', models.DateTimeField(blank=True, null=True)),
                ('tries', models.PositiveIntegerField(default=0)),
                ('next_try_at', models.DateTimeField()),
                ('busy_until', models.DateTimeField(blank=True, null=True)),
                ('suspected_at', models.DateTimeField(blank=True, null=True)),
                ('checked_at', models.DateTimeField(blank=True, null=True)),
                ('repaired_files', models.PositiveIntegerField(default=0)),
                ('is_damaged', models.BooleanField(default=False)),
                ('last_error', models.CharField(blank=True, default='', max_length=500)),
            ],
            options={
                'verbose_name_plural': 'artifact copies',
                'indexes': [models.Index(condition=models.Q(('copied_at__isnull', True), ('suspected_at__isnull', False), _connector='OR'), fields=['next_try_at'], name='artifact_copy_due')],
            },
        ),
    ]
