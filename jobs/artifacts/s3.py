"""The store in an S3-compatible bucket: bytes go straight between the nodes and the bucket, never through us.

A file of one part is a plain PUT, a larger one a multipart upload. S3 gives sizes and ETags, not SHA-256: whoever
downloads checks the hash, and an address to PUT to stays good until it expires.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from django.conf import settings

from jobs.artifacts.store import (
    CHUNK_BYTES,
    PART_BYTES,
    UPLOAD_URL_SECONDS,
    Part,
    Store,
    Stored,
    Upload,
    checked_key,
    is_key,
)
from jobs.errors import UploadIncomplete
from marketplace.foundation import clock

CONNECT_SECONDS_MAX = 5
READ_SECONDS_MAX = 30
TRIES_MAX = 3
KEYS_PER_DELETE_MAX = 1000  # S3's limit
MISSING = frozenset({"404", "NoSuchKey", "NoSuchUpload", "NotFound"})
INCOMPLETE = frozenset({"InvalidPart", "InvalidPartOrder", "EntityTooSmall", "NoSuchUpload", "MalformedXML"})


class S3Store(Store):
    """Objects in one bucket."""

    def __init__(self, client: Any, bucket: str, *, part_bytes: int = PART_BYTES) -> None:
        self.part_bytes = part_bytes
        self._s3 = client
        self._bucket = bucket

    @classmethod
    def from_settings(cls) -> S3Store:
        """The bucket of SOUK_S3_*."""
        client = make_client(
            endpoint=settings.SOUK_S3_ENDPOINT,
            region=settings.SOUK_S3_REGION,
            access_key=settings.SOUK_S3_ACCESS_KEY,
            secret_key=settings.SOUK_S3_SECRET_KEY,
        )
        return cls(client, settings.SOUK_S3_BUCKET)

    @classmethod
    def second_from_settings(cls) -> S3Store:
        """The bucket of SOUK_ARTIFACT_SECOND_S3_*."""
        client = make_client(
            endpoint=settings.SOUK_ARTIFACT_SECOND_S3_ENDPOINT,
            region=settings.SOUK_ARTIFACT_SECOND_S3_REGION,
            access_key=settings.SOUK_ARTIFACT_SECOND_S3_ACCESS_KEY,
            secret_key=settings.SOUK_ARTIFACT_SECOND_S3_SECRET_KEY,
        )
        return cls(client, settings.SOUK_ARTIFACT_SECOND_S3_BUCKET)

    def begin_upload(self, key: str, size: int, *, upload_id: str = "") -> Upload:
        planned = self.plan_parts(size)
        if len(planned) == 1:
            return Upload("", [Part(*planned[0], self._presign("put_object", key, ContentLength=size))])
        if not upload_id or not self._is_open(key, upload_id):
            begun = self._s3.create_multipart_upload(Bucket=self._bucket, Key=checked_key(key))
            upload_id = begun["UploadId"]
        parts = [
            Part(
                number,
                offset,
                length,
                self._presign("upload_part", key, UploadId=upload_id, PartNumber=number, ContentLength=length),
            )
            for number, offset, length in planned
        ]
        return Upload(upload_id, parts)

    def finish_upload(self, key: str, size: int, etags: Sequence[str], *, upload_id: str = "") -> Stored:
        found = self._head(key)
        if found is None and upload_id:
            # S3 would join too few parts without an error, and the upload would be over.
            if len(etags) != len(self.plan_parts(size)):
                raise UploadIncomplete(key=key)
            self._complete(key, etags, upload_id)
            found = self._head(key)
        if found is None or found["ContentLength"] != size:
            raise UploadIncomplete(key=key)
        if etags and not upload_id and [found["ETag"].strip('"')] != [etag.strip('"') for etag in etags]:
            raise UploadIncomplete(key=key)
        return Stored(size, None)

    def url_for_download(self, key: str, *, until: datetime) -> str:
        seconds = max(1, int((until - clock.now()).total_seconds()))
        return self._presign("get_object", key, seconds=seconds)

    def read(self, key: str, bytes_max: int) -> bytes:
        with self._open(key) as body:  # no range: an empty file has none
            return bytes(body.read(bytes_max))

    def chunks(self, key: str) -> Iterator[bytes]:
        body = self._open(key)  # as a context it would be the bare response, which does not see a body cut short
        try:
            yield from body.iter_chunks(CHUNK_BYTES)
        finally:
            body.close()

    def write(self, key: str, chunks: Iterable[bytes]) -> None:
        blocks = _blocks_of(chunks, self.part_bytes)
        first, second = next(blocks, b""), next(blocks, None)
        if second is None:  # all bytes are here, and `chunks` has raised nothing
            self._s3.put_object(Bucket=self._bucket, Key=checked_key(key), Body=first)
            return
        begun = self._s3.create_multipart_upload(Bucket=self._bucket, Key=checked_key(key))
        upload_id, etags = begun["UploadId"], []
        try:
            for number, block in enumerate(itertools.chain((first, second), blocks), start=1):
                answer = self._s3.upload_part(
                    Bucket=self._bucket, Key=key, UploadId=upload_id, PartNumber=number, Body=block
                )
                etags.append(answer["ETag"])
                first = second = b""  # they went
            self._complete(key, etags, upload_id)
        except BaseException:
            self._s3.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)
            raise

    def sizes(self, prefix: str) -> dict[str, int]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
        return {entry["Key"]: int(entry["Size"]) for page in pages for entry in page.get("Contents", [])}

    def delete(self, key: str) -> None:
        self._s3.delete_object(Bucket=self._bucket, Key=checked_key(key))

    def delete_prefix(self, prefix: str) -> None:
        if not is_key(prefix.rstrip("/") + "/0/000000") and not is_key(prefix.rstrip("/") + "/000000"):
            raise ValueError(f"{prefix!r} is not the beginning of a key")
        for key, upload_id in self._half_uploads(prefix):
            self._s3.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)
        keys = list(self.sizes(prefix))
        for start in range(0, len(keys), KEYS_PER_DELETE_MAX):
            batch = [{"Key": key} for key in keys[start : start + KEYS_PER_DELETE_MAX]]
            self._s3.delete_objects(Bucket=self._bucket, Delete={"Objects": batch, "Quiet": True})

    # --- below

    def _presign(self, operation: str, key: str, *, seconds: int = UPLOAD_URL_SECONDS, **extra: Any) -> str:
        params = {"Bucket": self._bucket, "Key": checked_key(key), **extra}
        return str(self._s3.generate_presigned_url(operation, Params=params, ExpiresIn=seconds))

    def _open(self, key: str) -> Any:
        try:
            return self._s3.get_object(Bucket=self._bucket, Key=checked_key(key))["Body"]
        except ClientError as error:
            if error.response["Error"]["Code"] in MISSING:
                raise UploadIncomplete(key=key) from error
            raise

    def _head(self, key: str) -> dict[str, Any] | None:
        try:
            return dict(self._s3.head_object(Bucket=self._bucket, Key=checked_key(key)))
        except ClientError as error:
            if error.response["Error"]["Code"] in MISSING:
                return None
            raise

    def _complete(self, key: str, etags: Sequence[str], upload_id: str) -> None:
        parts = [{"ETag": etag, "PartNumber": number} for number, etag in enumerate(etags, start=1)]
        try:
            self._s3.complete_multipart_upload(
                Bucket=self._bucket, Key=checked_key(key), UploadId=upload_id, MultipartUpload={"Parts": parts}
            )
        except ClientError as error:
            if error.response["Error"]["Code"] in INCOMPLETE:
                raise UploadIncomplete(key=key) from error
            raise

    def _is_open(self, key: str, upload_id: str) -> bool:
        """Whether parts can still be put: a bucket's rules may have ended the upload."""
        try:
            self._s3.list_parts(Bucket=self._bucket, Key=checked_key(key), UploadId=upload_id, MaxParts=1)
        except ClientError as error:
            if error.response["Error"]["Code"] in MISSING:
                return False
            raise
        return True

    def _half_uploads(self, prefix: str) -> Iterator[tuple[str, str]]:
        pages = self._s3.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix)
        for page in pages:
            for entry in page.get("Uploads", []):
                yield entry["Key"], entry["UploadId"]


def _blocks_of(chunks: Iterable[bytes], block_bytes: int) -> Iterator[bytes]:
    """The same bytes in blocks of just so many, the last one of less: a bucket takes no smaller part before the end."""
    waiting = bytearray()
    for chunk in chunks:
        waiting += chunk
        while len(waiting) > block_bytes:
            yield bytes(waiting[:block_bytes])
            del waiting[:block_bytes]
    yield bytes(waiting)


def make_client(*, endpoint: str, region: str, access_key: str, secret_key: str) -> Any:
    """A client whose addresses any S3-compatible store understands: path style, version 4, no checksums of its own."""
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": "path"},
        connect_timeout=CONNECT_SECONDS_MAX,
        read_timeout=READ_SECONDS_MAX,
        retries={"max_attempts": TRIES_MAX, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.client(
        "s3",
        endpoint_url=endpoint or None,
        region_name=region or "us-east-1",
        aws_access_key_id=access_key or None,
        aws_secret_access_key=secret_key or None,
        config=config,
    )
