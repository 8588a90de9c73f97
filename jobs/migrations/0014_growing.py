"""Gangs that grow: leases that wait to join one, and what the growths of an attempt cost."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0013_prepared'),
    ]

    operations = [
        migrations.AddField(
            model_name='attempt',
            name='grown_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='attempt',
            name='growth_usd_micros',
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='lease',
            name='follows_sizes',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name='lease',
            name='is_joining',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name='lease',
            name='joined_generation',
            field=models.PositiveSmallIntegerField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name='lease',
            index=models.Index(condition=models.Q(('is_joining', True), ('state__in', ['active', 'reserved'])), fields=['reserved_at'], name='lease_joining_since'),
        ),
    ]
