"""How far the check of an artifact's two stores came."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0009_artifact_copies'),
    ]

    operations = [
        migrations.AddField(
            model_name='artifactcopy',
            name='checked_files',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='artifactcopy',
            name='lost_files',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
    ]
