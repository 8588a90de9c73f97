from django.db import migrations, models


class Migration(migrations.Migration):
    """Apart from the data before it: PostgreSQL alters no table whose rows were changed in the same transaction."""

    dependencies = [("nodes", "0013_devices_claimed")]

    operations = [
        migrations.RemoveConstraint(model_name="device", name="gpu_sold_once"),
        migrations.AddConstraint(
            model_name="device",
            constraint=models.UniqueConstraint(
                condition=models.Q(("is_claimed", True), ("kind", "gpu")), fields=("uuid",), name="gpu_claimed_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="device",
            constraint=models.CheckConstraint(
                condition=models.Q(("is_healthy", False), ("is_claimed", True), _connector="OR"),
                name="healthy_device_claimed",
            ),
        ),
    ]
