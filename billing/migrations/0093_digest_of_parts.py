"""Whether a settlement is a part or the last is in its row's digest, too."""

from django.db import migrations

from billing.functions import install

# Past the triggers that forbid changes; of the rows that are there only parts get another digest.
FILL = """
ALTER TABLE billing_settlement DISABLE TRIGGER USER;
UPDATE billing_settlement r SET row_digest = billing_digest(r) WHERE NOT r.is_final;
ALTER TABLE billing_settlement ENABLE TRIGGER USER;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0092_settle_in_parts")]

    operations = [install("digest_rows"), migrations.RunSQL(FILL, migrations.RunSQL.noop)]
