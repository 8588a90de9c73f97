from django.db import migrations

KEYS = """
    UPDATE jobs_endpointkey
    SET expires_at = LEAST(GREATEST(expires_at, '1970-01-01 00:00:00+00'), '2999-12-31 23:59:59+00')
    WHERE expires_at NOT BETWEEN '1970-01-01 00:00:00+00' AND '2999-12-31 23:59:59+00'
"""


class Migration(migrations.Migration):
    """Moments beyond the calendar become its last or first one, so that the constraint can be added."""

    dependencies = [("jobs", "0016_enforce_states")]

    operations = [migrations.RunSQL(KEYS, migrations.RunSQL.noop)]
