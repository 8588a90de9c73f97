"""Expand: a version's state may be `rolled_back`, the new name of `taken_back`. The column `take_back` stays as it is."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0014_kind_known")]

    operations = [
        migrations.RemoveConstraint(model_name="endpointversion", name="version_state_known"),
        migrations.AlterField(
            model_name="endpointversion",
            name="state",
            field=models.CharField(
                choices=[
                    ("starting", "Starting"),
                    ("live", "Live"),
                    ("retired", "Retired"),
                    ("rolled_back", "Rolled Back"),
                ],
                default="starting",
                max_length=16,
            ),
        ),
        migrations.AddConstraint(
            model_name="endpointversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["starting", "live", "retired", "rolled_back", "taken_back"])),
                name="version_state_known",
            ),
        ),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RenameField(
                    model_name="endpoint", old_name="take_back", new_name="is_rollback_requested"
                ),
                migrations.AlterField(
                    model_name="endpoint",
                    name="is_rollback_requested",
                    field=models.BooleanField(db_column="take_back", default=False),
                ),
            ],
        ),
    ]
