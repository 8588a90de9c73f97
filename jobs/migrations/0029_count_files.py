"""Parts from before count, and bytes that come late to an address from before are found."""

from django.db import migrations

FILES = """
    UPDATE jobs_artifactpart SET file_count = jsonb_array_length(files)
    WHERE jsonb_typeof(files) = 'array' AND jsonb_array_length(files) > 0
"""
URLS = """
    UPDATE jobs_artifactpart SET urls_until = now() + interval '6 hours' WHERE NOT is_complete
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0028_parts_of_artifacts")]

    operations = [
        migrations.RunSQL(FILES, migrations.RunSQL.noop),
        migrations.RunSQL(URLS, migrations.RunSQL.noop),
    ]
