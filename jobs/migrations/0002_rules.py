"""Where fences come from, prices that stay, and the states of jobs and what belongs to them, whoever writes."""

from django.db import migrations

from jobs.states import (
    ARTIFACT_MACHINE,
    ATTEMPT_MACHINE,
    JOB_MACHINE,
    LEASE_MACHINE,
    REPLICA_MACHINE,
    VERSION_MACHINE,
)
from marketplace.foundation.state_triggers import enforce_states

# One sequence for all, so that a newer lease of any device always has a higher fence.
FENCES = "CREATE SEQUENCE jobs_lease_fence"
FENCES_BACK = "DROP SEQUENCE jobs_lease_fence"

# A price at which leases were paid is never changed or taken away.
PRICES = """
CREATE TRIGGER price_lock_stays BEFORE UPDATE OR DELETE ON jobs_pricelock
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""
PRICES_BACK = "DROP TRIGGER price_lock_stays ON jobs_pricelock;"


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_tables"), ("billing", "0002_rules"), ("foundation", "0002_rules")]

    replaces = [
        ("jobs", "0002_fence_sequence"),
        ("jobs", "0008_price_locks_stay"),
        ("jobs", "0016_enforce_states"),
    ]

    operations = [
        migrations.RunSQL(FENCES, FENCES_BACK),
        migrations.RunSQL(PRICES, PRICES_BACK),
        enforce_states("jobs_job", JOB_MACHINE),
        enforce_states("jobs_attempt", ATTEMPT_MACHINE),
        enforce_states("jobs_lease", LEASE_MACHINE),
        enforce_states("jobs_replica", REPLICA_MACHINE),
        enforce_states("jobs_endpointversion", VERSION_MACHINE),
        enforce_states("jobs_artifact", ARTIFACT_MACHINE),
    ]
