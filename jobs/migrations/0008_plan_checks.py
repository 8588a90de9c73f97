"""What the planner said of a training beside what was measured."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0002_rules'),
        ('jobs', '0007_following_evaluations'),
        ('nodes', '0002_rules'),
    ]

    operations = [
        migrations.CreateModel(
            name='PlanCheck',
            fields=[
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='plan_check', serialize=False, to='jobs.job')),
                ('is_own', models.BooleanField(default=False)),
                ('family', models.CharField(blank=True, max_length=32)),
                ('parameters', models.PositiveBigIntegerField(default=0)),
                ('model_digest', models.CharField(blank=True, max_length=64)),
                ('device_kind', models.CharField(blank=True, max_length=8)),
                ('device_model', models.CharField(blank=True, max_length=120)),
                ('method', models.CharField(blank=True, max_length=8)),
                ('strategy', models.CharField(blank=True, max_length=16)),
                ('ranks', models.PositiveIntegerField(default=1)),
                ('nodes', models.PositiveIntegerField(default=1)),
                ('planned_peak_bytes', models.PositiveBigIntegerField(blank=True, null=True)),
                ('measured_peak_bytes', models.PositiveBigIntegerField(blank=True, null=True)),
                ('planned_seconds', models.FloatField(blank=True, null=True)),
                ('measured_seconds', models.FloatField(blank=True, null=True)),
                ('why', models.CharField(blank=True, max_length=200)),
                ('ended_at', models.DateTimeField()),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.organisation')),
                ('provider', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='nodes.provider')),
            ],
            options={
                'indexes': [models.Index(fields=['device_kind', 'method', '-ended_at'], name='plan_check_alike'), models.Index(fields=['ended_at'], name='plan_check_by_age')],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('measured_peak_bytes', None), ('planned_peak_bytes', None)), models.Q(('measured_peak_bytes__gt', 0), ('planned_peak_bytes__gt', 0)), _connector='OR'), name='plan_check_has_both_peaks'), models.CheckConstraint(condition=models.Q(models.Q(('measured_seconds', None), ('planned_seconds', None)), models.Q(('measured_seconds__gt', 0), ('planned_seconds__gt', 0)), _connector='OR'), name='plan_check_has_both_times')],
            },
        ),
    ]
