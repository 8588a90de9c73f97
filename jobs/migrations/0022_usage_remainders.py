"""What requests cost below a micro-dollar is carried on, for each key and endpoint."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0021_unreported_before'),
    ]

    operations = [
        migrations.CreateModel(
            name='UsageRemainder',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('key_id', models.UUIDField()),
                ('endpoint_id', models.UUIDField()),
                ('picos', models.PositiveIntegerField()),
            ],
            options={
                'constraints': [
                    models.UniqueConstraint(fields=('key_id', 'endpoint_id'), name='one_usage_remainder'),
                    models.CheckConstraint(condition=models.Q(('picos__lt', 1000000)), name='remainder_below_one_micro'),
                ],
            },
        ),
    ]
