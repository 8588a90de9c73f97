"""What is mutated, and the tests that have to notice: those nearest to it, so that one mutant takes seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GOAL: Final = 0.85  # of all mutants that were tried


@dataclass(frozen=True)
class Target:
    """Modules that guard one thing, and its tests (files or folders below `tests/`)."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


TARGETS: Final[dict[str, Target]] = {
    "ledger": Target(
        ("billing/books/ledger.py",),
        (
            "integration/billing/test_ledger.py",
            "integration/billing/test_verify.py",
            "integration/billing/test_ledger_command.py",
        ),
    ),
    "verifier": Target(
        ("billing/books/hash_chain.py", "billing/books/verify.py"),
        (
            "unit/billing/test_merkle_root.py",
            "integration/billing/test_hash_chain.py",
            "integration/billing/test_verify.py",
            "integration/billing/test_ledger_command.py",
            "integration/billing/test_flipped_bytes.py",
        ),
    ),
    "holds": Target(
        ("billing/charging/holds.py",),
        ("integration/billing/charging/test_holds.py", "integration/billing/charging/test_hold_states.py"),
    ),
    "settlement": Target(
        ("billing/charging/settlement.py", "billing/charging/fees.py"),
        (
            "unit/billing/test_fees.py",
            "integration/billing/charging/test_settlement.py",
            "integration/jobs/lifecycle/test_spending.py",
        ),
    ),
    "metering": Target(
        ("billing/charging/metering.py",),
        (
            "integration/billing/charging/test_metering.py",
            "integration/billing/charging/test_metering_properties.py",
        ),
    ),
    "agent_auth": Target(
        ("marketplace/nodes/agent_auth.py",),
        ("integration/nodes/test_agent_auth.py", "integration/nodes/test_agent_requests.py"),
    ),
    "keys_and_scopes": Target(
        (
            "marketplace/accounts/api_keys.py",
            "marketplace/accounts/scopes.py",
            "marketplace/accounts/permissions.py",
        ),
        (
            "integration/accounts/test_api_keys.py",
            "integration/accounts/test_scopes_never_grow.py",
            "integration/accounts/test_permission_matrix.py",
            "integration/accounts/test_permissions.py",
        ),
    ),
    "leasing": Target(
        ("jobs/leases/leasing.py", "jobs/leases/fencing.py"),
        (
            "integration/jobs/test_leasing.py",
            "integration/jobs/lifecycle/test_lifecycle.py",
            "integration/jobs/lifecycle/test_recovery.py",
            "integration/jobs/lifecycle/test_spending.py",
            "integration/jobs/test_lease_properties.py",
            "integration/jobs/test_streams.py",
        ),
    ),
    "states": Target(
        (
            "marketplace/foundation/states.py",
            "jobs/states.py",
            "marketplace/nodes/states.py",
            "billing/states/__init__.py",
            "billing/states/chain.py",
            "billing/states/fiat.py",
        ),
        (
            "integration/foundation/test_states.py",
            "integration/foundation/test_state_triggers.py",
            "integration/billing/charging/test_hold_states.py",
        ),
    ),
}
