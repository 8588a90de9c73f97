"""States of a node.

    pending -> online <-> offline <-> draining
               online <-> draining -> retired
    any -> quarantined -> online | retired;   any but retired -> retired

A draining node that falls silent is offline, and comes back draining (Node.drain_requested_at remembers).
"""

from __future__ import annotations

from django.db import models

from marketplace.foundation.states import machine


class NodeState(models.TextChoices):
    """pending: enrolled, not yet measured. draining: finishes what it has, takes nothing new."""

    PENDING = "pending"
    ONLINE = "online"
    OFFLINE = "offline"
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    RETIRED = "retired"


_S = NodeState
NODE_MACHINE = machine(
    "node",
    {
        _S.PENDING: [_S.ONLINE, _S.QUARANTINED, _S.RETIRED],
        _S.ONLINE: [_S.OFFLINE, _S.DRAINING, _S.QUARANTINED, _S.RETIRED],
        _S.OFFLINE: [_S.ONLINE, _S.DRAINING, _S.QUARANTINED, _S.RETIRED],
        _S.DRAINING: [_S.ONLINE, _S.OFFLINE, _S.QUARANTINED, _S.RETIRED],
        _S.QUARANTINED: [_S.ONLINE, _S.RETIRED],
        _S.RETIRED: [],
    },
)
