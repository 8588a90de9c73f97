"""From the provider's account at Stripe to its bank: what is known of each payout's second half."""

import django.db.models.deletion
import marketplace.foundation.clock
import marketplace.foundation.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0100_windows_of_shares'),
    ]

    operations = [
        migrations.CreateModel(
            name='BankLeg',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('state', models.CharField(choices=[('sending', 'Sending'), ('refused', 'Refused'), ('sent', 'Sent'), ('paid', 'Paid'), ('sent_back', 'Sent Back'), ('returned', 'Returned'), ('left_at_stripe', 'Left')], default='sending', max_length=16)),
                ('bank_payout_id', models.CharField(blank=True, db_index=True, max_length=120)),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('message', models.TextField(blank=True)),
                ('next_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('payout', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='bank_leg', to='billing.payout')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('next_at__isnull', False)), fields=['next_at'], name='bank_leg_due')],
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['sending', 'refused', 'sent', 'paid', 'sent_back', 'returned', 'left_at_stripe'])), name='bank_leg_state_known'), models.CheckConstraint(condition=models.Q(('next_at', None), ('state__in', ['refused', 'sent_back']), _connector='OR'), name='bank_leg_retries_refusals')],
            },
        ),
    ]
