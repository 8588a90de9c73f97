"""A job may be an evaluation."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0003_curves'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='job',
            name='job_kind_known',
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['train', 'serve', 'command', 'eval'])), name='job_kind_known'),
        ),
    ]
