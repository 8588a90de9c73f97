"""What organisations kept beyond the allowance, day by day, and what they paid for it."""

import django.db.models.deletion
import marketplace.foundation.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0008_existing_accounts_verified'),
        ('jobs', '0025_dated_artifacts'),
    ]

    operations = [
        migrations.CreateModel(
            name='StorageCharge',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('day', models.DateField(db_index=True)),
                ('kept_bytes', models.PositiveBigIntegerField()),
                ('free_bytes', models.PositiveBigIntegerField()),
                ('usd_micros_per_gib_month', models.PositiveBigIntegerField()),
                ('due_usd_micros', models.PositiveBigIntegerField()),
                ('charged_usd_micros', models.PositiveBigIntegerField()),
                ('is_paid', models.BooleanField()),
                ('remainder', models.PositiveBigIntegerField()),
                ('charged_at', models.DateTimeField()),
                ('organisation', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.organisation')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('organisation', 'day'), name='one_storage_charge_a_day'), models.CheckConstraint(condition=models.Q(models.Q(('charged_usd_micros', models.F('due_usd_micros')), ('is_paid', True)), models.Q(('charged_usd_micros', 0), ('is_paid', False)), _connector='OR'), name='storage_day_is_paid_whole_or_not'), models.CheckConstraint(condition=models.Q(('remainder__lt', 32212254720)), name='storage_remainder_below_one_micro')],
            },
        ),
    ]
