"""Jobs and what belongs to them begin in their first state and follow their edges, whoever writes."""

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


class Migration(migrations.Migration):
    dependencies = [("jobs", "0015_allow_rolled_back"), ("foundation", "0002_state_edges")]

    operations = [
        enforce_states("jobs_job", JOB_MACHINE),
        enforce_states("jobs_attempt", ATTEMPT_MACHINE),
        enforce_states("jobs_lease", LEASE_MACHINE),
        enforce_states("jobs_replica", REPLICA_MACHINE),
        enforce_states("jobs_endpointversion", VERSION_MACHINE),
        enforce_states("jobs_artifact", ARTIFACT_MACHINE),
    ]
