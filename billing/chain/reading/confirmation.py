"""Whether what a chain reported still counts: not while final blocks are missing, or its endpoints disagree."""

from __future__ import annotations

from billing.models import Alert
from billing.models.alerts import Severity


def key_of(chain_id: int) -> str:
    """The alert that is open while a chain cannot be followed; critical while it cannot be believed either."""
    return f"chain:follow:{chain_id}"


def is_unconfirmed(chain_id: int) -> bool:
    """Whether the last read of this chain contradicted what was trusted before."""
    return Alert.objects.open().filter(key=key_of(chain_id), severity=Severity.CRITICAL).exists()
