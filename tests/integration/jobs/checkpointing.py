"""Checkpoints as our training runtime writes them, and as liars do, sent as an agent sends them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import httpx

from jobs.artifacts import uploads
from jobs.models import Artifact, Job, Lease
from provider_agent.protocol import ArtifactBegin, ArtifactFile, AttemptState
from tests import stage

Files = dict[str, bytes]
WEIGHTS_BYTES = 4000


def genuine(lease: Lease, step: int) -> Files:
    """The files of a lease that is alone; without the manifest, which `sealed` adds."""
    spec = lease.attempt.job.spec["train"]
    pinned = {name: spec.get(name, 1024) for name in ("global_batch_size", "sequence_length", "seed")}
    trainer = {"step": step, "world_size": lease.device_count, "layout": "plain-names", "data": "0" * 64}
    return {
        "__0_0.distcp": bytes(WEIGHTS_BYTES),
        ".metadata": b"pickled",
        "tokenizer.json": b"{}",
        "trainer.json": json.dumps(trainer | {"config": pinned}).encode(),
    }


def sealed(lease: Lease, step: int, files: Files, /, **changes: Any) -> Files:
    """With the manifest that names them."""
    listed = [{"path": path, "size": len(data), "sha256": _sha256(data)} for path, data in sorted(files.items())]
    world = {"world_size": lease.device_count, "node_rank": lease.node_rank, "nodes": 1}
    body = {"contract": 1, "step": step, **world, "files": listed, **changes}
    return {**files, "MANIFEST.json": json.dumps(body).encode()}


def save(lease: Lease, step: int, files: Files | None = None, *, billable_ms: int = 0) -> Artifact:
    """Announce, upload and complete a checkpoint, a genuine one unless files are given; raises what the server does."""
    lease = Lease.objects.select_related("attempt__job", "node").get(pk=lease.pk)
    files = sealed(lease, step, genuine(lease, step)) if files is None else files
    entries = [ArtifactFile(path=path, size=len(data), sha256=_sha256(data)) for path, data in files.items()]
    request = ArtifactBegin(
        kind="checkpoint", step=step, node_rank=lease.node_rank, billable_ms=billable_ms, files=entries
    )
    answer = uploads.begin(lease, request, fence=lease.fence)
    etags = {}
    for file in answer.uploads:
        (part,) = file.parts
        etags[file.path] = [httpx.put(part.url, content=files[file.path]).headers["ETag"].strip('"')]
    return uploads.complete(lease, answer.artifact_id, etags, fence=lease.fence)


def run_next(job: Job) -> Lease:
    """The lease of the job's next attempt, on whatever node it comes to, reported to run."""
    (lease,) = stage.place(job)
    stage.send_report(lease, AttemptState.RUNNING)
    return Lease.objects.select_related("attempt__job", "node").get(pk=lease.pk)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
