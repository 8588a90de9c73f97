"""What earlier jobs left, as inputs of a later job."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0004_kind_eval'),
    ]

    operations = [
        migrations.CreateModel(
            name='JobInput',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('folder', models.CharField(max_length=63)),
                ('artifact', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='jobs.artifact')),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='result_inputs', to='jobs.job')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('job', 'folder'), name='one_result_per_folder')],
            },
        ),
    ]
