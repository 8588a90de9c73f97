"""What of a refund made at Stripe the customer still owes."""

import django.db.models.expressions
from django.db import migrations, models

import billing.fields


class Migration(migrations.Migration):
    dependencies = [("billing", "0031_fiat_states")]

    operations = [
        migrations.AddField(
            model_name="topuprefund",
            name="shortage",
            field=billing.fields.AmountField(default=0),
        ),
        migrations.AddConstraint(
            model_name="topuprefund",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("shortage__gte", 0), ("shortage__lte", django.db.models.expressions.F("amount"))
                ),
                name="top_up_refund_shortage_is_part_of_it",
            ),
        ),
    ]
