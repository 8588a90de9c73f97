"""A job's later token prices, what it waits for where one needs its customer's word, and by which a lease is paid."""

import billing.fields
import django.db.models.deletion
import marketplace.foundation.clock
import marketplace.foundation.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0006_escrow_mode'),
    ]

    operations = [
        migrations.CreateModel(
            name='PriceHalt',
            fields=[
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='price_halt', serialize=False, to='jobs.job')),
                ('usd_micros_per_token', billing.fields.AmountField(null=True)),
                ('source', models.CharField(blank=True, max_length=40)),
                ('observed_at', models.DateTimeField(null=True)),
                ('created_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('observed_at', None), ('source', ''), ('usd_micros_per_token', None)), models.Q(('observed_at__isnull', False), ('usd_micros_per_token__gt', 0), ('usd_micros_per_token__isnull', False), models.Q(('source', ''), _negated=True)), _connector='OR'), name='price_halt_asks_for_a_whole_price')],
            },
        ),
        migrations.CreateModel(
            name='PriceLock',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField()),
                ('usd_micros_per_token', billing.fields.AmountField()),
                ('source', models.CharField(max_length=40)),
                ('observed_at', models.DateTimeField()),
                ('reason', models.CharField(choices=[('renewed', 'renewed'), ('rose', 'rose'), ('agreed', 'agreed'), ('allowed', 'allowed'), ('confirmed', 'confirmed')], max_length=16)),
                ('actor', models.CharField(default='system', max_length=120)),
                ('attempts_before', models.PositiveSmallIntegerField(default=0)),
                ('charged_usd_micros', models.PositiveBigIntegerField(default=0)),
                ('charged_units', billing.fields.AmountField(default=0)),
                ('created_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='price_locks', to='jobs.job')),
            ],
        ),
        migrations.AddField(
            model_name='lease',
            name='price_lock',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='jobs.pricelock'),
        ),
        migrations.AddConstraint(
            model_name='pricelock',
            constraint=models.UniqueConstraint(fields=('job', 'number'), name='price_locks_are_numbered'),
        ),
        migrations.AddConstraint(
            model_name='pricelock',
            constraint=models.CheckConstraint(condition=models.Q(('usd_micros_per_token__gt', 0)), name='price_lock_has_a_price'),
        ),
        migrations.AddConstraint(
            model_name='pricelock',
            constraint=models.CheckConstraint(condition=models.Q(('reason__in', ['renewed', 'rose', 'agreed', 'allowed', 'confirmed'])), name='price_lock_reason_known'),
        ),
    ]
