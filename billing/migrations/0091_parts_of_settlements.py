
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0090_usage_pay'),
    ]

    operations = [
        migrations.AddField(
            model_name='settlement',
            name='is_final',
            field=models.BooleanField(db_default=True, default=True),
        ),
        migrations.AlterField(
            model_name='dispute',
            name='lease_id',
            field=models.UUIDField(db_index=True),
        ),
        migrations.AlterField(
            model_name='settlement',
            name='job_id',
            field=models.UUIDField(db_index=True),
        ),
        migrations.AlterField(
            model_name='settlementshare',
            name='lease_id',
            field=models.UUIDField(db_index=True),
        ),
        migrations.AddConstraint(
            model_name='settlement',
            constraint=models.UniqueConstraint(condition=models.Q(('is_final', True)), fields=('job_id',), name='one_final_settlement_per_job'),
        ),
        migrations.AddConstraint(
            model_name='settlementshare',
            constraint=models.UniqueConstraint(fields=('lease_id', 'settlement'), name='one_share_per_lease_and_settlement'),
        ),
    ]
