"""A job says whether the ledger holds its money or a contract does; a delegation, whether the contract was told."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0001_initial'),
        ('jobs', '0005_payment_rules'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='payment_mode',
            field=models.CharField(choices=[('credits', 'Credits'), ('escrow', 'Escrow')], default='credits', max_length=8),
        ),
        migrations.AddField(
            model_name='receiptdelegation',
            name='told_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('payment_mode__in', ['credits', 'escrow'])), name='job_payment_mode_known'),
        ),
    ]
