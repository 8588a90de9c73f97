from django.db import migrations

OFFERS = """
    UPDATE nodes_offer
    SET available_until = LEAST(GREATEST(available_until, '1970-01-01 00:00:00+00'), '2999-12-31 23:59:59+00')
    WHERE available_until NOT BETWEEN '1970-01-01 00:00:00+00' AND '2999-12-31 23:59:59+00'
"""

ROLLBACKS = """
    UPDATE nodes_node
    SET rolled_back_at = LEAST(GREATEST(rolled_back_at, '1970-01-01 00:00:00+00'), '2999-12-31 23:59:59+00')
    WHERE rolled_back_at NOT BETWEEN '1970-01-01 00:00:00+00' AND '2999-12-31 23:59:59+00'
"""


class Migration(migrations.Migration):
    """Moments beyond the calendar become its last or first one, so that the constraint can be added."""

    dependencies = [("nodes", "0008_enforce_states")]

    operations = [migrations.RunSQL(OFFERS, migrations.RunSQL.noop), migrations.RunSQL(ROLLBACKS, migrations.RunSQL.noop)]
