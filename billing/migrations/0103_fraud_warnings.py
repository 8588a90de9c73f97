"""Early fraud warnings of cards' banks, and when each froze a balance."""

import django.db.models.deletion
import marketplace.foundation.clock
import marketplace.foundation.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0102_bank_leg_states'),
    ]

    operations = [
        migrations.CreateModel(
            name='FraudWarning',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('stripe_id', models.CharField(max_length=120, unique=True)),
                ('fraud_type', models.CharField(blank=True, max_length=64)),
                ('is_actionable', models.BooleanField(default=True)),
                ('frozen_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('top_up', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='fraud_warnings', to='billing.topup')),
            ],
        ),
    ]
