"""What a fake marketplace takes in of its leases: streams by offset, receipts by sequence, artifacts part by part.

It checks what the real one checks, and keeps everything for the tests to look at.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from provider_agent import protocol
from provider_agent.protocol import Assignment, AttemptState, Desired, LeaseReport

PART_BYTES = 1000  # a bigger file comes in two parts


class Refusal(Exception):
    """An error answer."""

    def __init__(self, status: int, code: str, **details: Any) -> None:
        super().__init__(code)
        self.status, self.code, self.details = status, code, details


@dataclass
class Lease:
    """One lease as the server has it."""

    assignment: Assignment
    desired: Desired
    report: LeaseReport | None = None
    states: list[AttemptState] = field(default_factory=list)
    logs: bytes = b""
    events: bytes = b""
    receipts: list[protocol.SignedReceipt] = field(default_factory=list)
    observed_ms: int | None = None  # None: all that is claimed
    receipt_refusals: int = 0
    forget: bool = False


@dataclass
class Artifact:
    """An announced artifact with the bytes that came."""

    begin: protocol.ArtifactBegin
    lease_id: UUID
    files: dict[str, bytes] = field(default_factory=dict)
    is_complete: bool = False


class FakeLeases:
    """Every lease, and what agents brought of it."""

    def __init__(self) -> None:
        self.leases: dict[UUID, Lease] = {}
        self.artifacts: dict[UUID, Artifact] = {}
        self.downloads: dict[UUID, dict[str, bytes]] = {}
        self.steps: dict[UUID, int] = {}  # of the checkpoints among them; 7 where nothing is said
        self.damaged: set[UUID] = set()  # of them those whose bytes are not what was announced
        self.problems: list[str] = []

    def answer_lease(self, lease: Lease, rest: list[str], query: dict[str, str], body: bytes) -> dict[str, Any]:
        if rest[0] in {"logs", "events"}:
            return self._append(lease, rest[0], int(query["offset"]), int(query["fence"]), body)
        if rest[0] == "receipts":
            return self._receipts(lease, protocol.ReceiptAppend.model_validate_json(body))
        if rest == ["artifacts"]:
            return self._begin(lease, protocol.ArtifactBegin.model_validate_json(body))
        artifact_id = UUID(rest[1])
        if rest[2:] == ["complete"]:
            return self._complete(artifact_id, protocol.ArtifactComplete.model_validate_json(body))
        return self._download(artifact_id)

    def _append(self, lease: Lease, stream: str, offset: int, fence: int, body: bytes) -> dict[str, Any]:
        if fence != lease.assignment.fence:
            raise Refusal(409, "stale_fence")
        have: bytes = getattr(lease, stream)
        if offset > len(have):
            raise Refusal(409, "offset_gap", offset=len(have))
        if have[offset : offset + len(body)] != body[: len(have) - offset]:
            self.problems.append(f"{stream} were sent twice with other bytes")
        have = have[:offset] + body if offset + len(body) > len(have) else have
        setattr(lease, stream, have)
        return {"offset": len(have)}

    def _receipts(self, lease: Lease, append: protocol.ReceiptAppend) -> dict[str, Any]:
        for signed in append.receipts:
            seq = signed.receipt.seq
            if seq <= len(lease.receipts):
                if lease.receipts[seq - 1] != signed:
                    self.problems.append(f"equivocation at {seq}")
                continue
            if seq != len(lease.receipts) + 1:
                raise Refusal(409, "receipt_gap")
            if lease.observed_ms is not None and signed.receipt.billable_ms > lease.observed_ms:
                lease.receipt_refusals += 1
                raise Refusal(409, "receipt_above_observed", seq=len(lease.receipts), observed_ms=lease.observed_ms)
            lease.receipts.append(signed)
        return {"seq": len(lease.receipts)}

    def _begin(self, lease: Lease, begin: protocol.ArtifactBegin) -> dict[str, Any]:
        artifact_id = uuid4()
        self.artifacts[artifact_id] = Artifact(begin, lease.assignment.lease_id)
        uploads = []
        for file in begin.files:
            sizes = [PART_BYTES, file.size - PART_BYTES] if file.size > PART_BYTES else [file.size]
            parts = [
                protocol.UploadPart(
                    number=number + 1,
                    offset=number * PART_BYTES,
                    size=size,
                    url=f"/store/{artifact_id}/{number + 1}/{file.path}",
                )
                for number, size in enumerate(sizes)
            ]
            uploads.append(protocol.FileUpload(path=file.path, parts=parts))
        return protocol.ArtifactUploads(artifact_id=artifact_id, uploads=uploads).model_dump(mode="json")

    def answer_store(self, method: str, path: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
        """Signed URLs: no headers of ours may be needed."""
        if method == "GET":
            artifact_id, name = path.split("/", 1)
            return 200, self.downloads[UUID(artifact_id)][name], {}
        artifact, number, name = path.split("/", 2)
        files = self.artifacts[UUID(artifact)].files
        files[f"{name}#{number}"] = body
        return 200, b"", {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}

    def _complete(self, artifact_id: UUID, complete: protocol.ArtifactComplete) -> dict[str, Any]:
        artifact = self.artifacts[artifact_id]
        for file in artifact.begin.files:
            etags = complete.etags[file.path]
            parts = [artifact.files[f"{file.path}#{number + 1}"] for number in range(len(etags))]
            data = b"".join(parts)
            if hashlib.sha256(data).hexdigest() != file.sha256:
                raise Refusal(400, "damaged")
            if etags != [hashlib.md5(part).hexdigest() for part in parts]:
                raise Refusal(400, "etag")
            artifact.files[file.path] = data
        artifact.is_complete = True
        return {}

    def _download(self, artifact_id: UUID) -> dict[str, Any]:
        files = [
            protocol.RemoteFile(
                path=path,
                size=len(data),
                sha256=hashlib.sha256(data + b"more" * (artifact_id in self.damaged)).hexdigest(),
                url=f"/store/{artifact_id}/{path}",
            )
            for path, data in self.downloads[artifact_id].items()
        ]
        answer = protocol.ArtifactDownloads(
            artifact_id=artifact_id, kind="checkpoint", step=self.steps.get(artifact_id, 7), files=files
        )
        return answer.model_dump(mode="json")
