"""Of what gateways count of a lease: the tokens that its agent cannot know of, and when the newest of it came."""

from django.db import migrations, models
from django.db.models.functions import Now

from marketplace.foundation import clock


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0019_set_aside'),
    ]

    operations = [
        migrations.AddField(
            model_name='leaseuse',
            name='unreported_input_tokens',
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='leaseuse',
            name='unreported_output_tokens',
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='leaseuse',
            name='counted_at',
            field=models.DateTimeField(db_default=Now(), db_index=True, default=clock.now),
        ),
        migrations.AddConstraint(
            model_name='leaseuse',
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ('unreported_input_tokens__lte', models.F('input_tokens')),
                    ('unreported_output_tokens__lte', models.F('output_tokens')),
                ),
                name='unreported_are_counted',
            ),
        ),
    ]
