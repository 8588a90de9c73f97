"""What a job's program reported of the whole run, at a bounded size."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0002_rules'),
    ]

    operations = [
        migrations.CreateModel(
            name='Curve',
            fields=[
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='curve', serialize=False, to='jobs.job')),
                ('attempt', models.PositiveIntegerField()),
                ('stride', models.PositiveBigIntegerField(default=1)),
                ('point_count', models.PositiveIntegerField(default=0)),
                ('names', models.JSONField(default=list)),
                ('has_more_names', models.BooleanField(default=False)),
            ],
        ),
        migrations.CreateModel(
            name='CurvePoint',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('bucket', models.PositiveBigIntegerField()),
                ('attempt', models.PositiveIntegerField()),
                ('first_step', models.PositiveBigIntegerField()),
                ('last_step', models.PositiveBigIntegerField()),
                ('values', models.JSONField()),
                ('curve', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='points', to='jobs.curve')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('curve', 'bucket'), name='curve_point_once_per_bucket')],
            },
        ),
    ]
