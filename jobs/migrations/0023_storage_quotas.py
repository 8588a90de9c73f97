"""Quotas of kept bytes, of organisations that have another one than the default."""


import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0008_existing_accounts_verified'),
        ('jobs', '0022_usage_remainders'),
    ]

    operations = [
        migrations.CreateModel(
            name='StorageQuota',
            fields=[
                ('organisation', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='accounts.organisation')),
                ('bytes_max', models.PositiveBigIntegerField()),
            ],
        ),
    ]
