"""What a training prepared is kept for later attempts of its job: one artifact a job."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0012_suspected_gangs'),
    ]

    operations = [
        migrations.AlterField(
            model_name='artifact',
            name='kind',
            field=models.CharField(choices=[('input', 'Input'), ('checkpoint', 'Checkpoint'), ('output', 'Output'), ('prepared', 'Prepared')], max_length=16),
        ),
        migrations.AddConstraint(
            model_name='artifact',
            constraint=models.UniqueConstraint(condition=models.Q(('kind', 'prepared'), ('state', 'complete')), fields=('job',), name='one_prepared_artifact_per_job'),
        ),
    ]
