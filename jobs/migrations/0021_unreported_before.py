"""Of what was counted before, no gateway said what engines had reported: all of it may be missing at the agent."""

from django.db import migrations

FILL = """
    UPDATE jobs_leaseuse SET unreported_input_tokens = input_tokens, unreported_output_tokens = output_tokens
"""


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0020_unreported_tokens'),
    ]

    operations = [migrations.RunSQL(FILL, migrations.RunSQL.noop)]
