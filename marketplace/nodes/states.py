"""States of a node, of a check of its devices, of a probe of its link to another node, and of a published agent.

    pending -> online <-> offline <-> draining
               online <-> draining -> retired
    any -> quarantined -> online | retired;   any but retired -> retired

A draining node that falls silent is offline, and comes back draining (Node.drain_requested_at remembers).

    check     demanded -> begun -> committed -> recalling -> passed | failed
              each before the end -> failed (no answer in time) | withdrawn (a lease came, or the node is away)
    probe     demanded -> measured | failed | withdrawn
    release   rolling -> complete;   rolling <-> paused;   rolling | complete -> halted -> rolling
              each but withdrawn -> withdrawn -> rolling (published again, or rolled back to)
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


class CheckState(models.TextChoices):
    """demanded: sync sends it. begun: the node has the seeds. committed: the openings. recalling: memory is read."""

    DEMANDED = "demanded"
    BEGUN = "begun"
    COMMITTED = "committed"
    RECALLING = "recalling"
    PASSED = "passed"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


_C = CheckState
CHECK_MACHINE = machine(
    "check",
    {
        _C.DEMANDED: [_C.BEGUN, _C.FAILED, _C.WITHDRAWN],
        _C.BEGUN: [_C.COMMITTED, _C.FAILED, _C.WITHDRAWN],
        _C.COMMITTED: [_C.RECALLING, _C.FAILED, _C.WITHDRAWN],
        _C.RECALLING: [_C.PASSED, _C.FAILED, _C.WITHDRAWN],
        _C.PASSED: [],
        _C.FAILED: [],
        _C.WITHDRAWN: [],
    },
)
CHECK_LIVE = (_C.DEMANDED, _C.BEGUN, _C.COMMITTED, _C.RECALLING)


class ProbeState(models.TextChoices):
    """demanded: sync sends it to both. measured: they reach each other. failed: they do not, or did not report."""

    DEMANDED = "demanded"
    MEASURED = "measured"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


_P = ProbeState
PROBE_MACHINE = machine(
    "link_probe",
    {_P.DEMANDED: [_P.MEASURED, _P.FAILED, _P.WITHDRAWN], _P.MEASURED: [], _P.FAILED: [], _P.WITHDRAWN: []},
)


class ReleaseState(models.TextChoices):
    """rolling: it is sent to a share of the nodes. halted: too many rolled it back; an operator has to decide."""

    ROLLING = "rolling"
    PAUSED = "paused"
    HALTED = "halted"
    COMPLETE = "complete"
    WITHDRAWN = "withdrawn"


_R = ReleaseState
RELEASE_MACHINE = machine(
    "release",
    {
        _R.ROLLING: [_R.PAUSED, _R.HALTED, _R.COMPLETE, _R.WITHDRAWN],
        _R.PAUSED: [_R.ROLLING, _R.WITHDRAWN],
        _R.HALTED: [_R.ROLLING, _R.WITHDRAWN],
        _R.COMPLETE: [_R.ROLLING, _R.HALTED, _R.WITHDRAWN],
        _R.WITHDRAWN: [_R.ROLLING],
    },
)
