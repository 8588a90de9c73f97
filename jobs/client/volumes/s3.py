"""The objects below `s3://bucket/prefix` as files to send: streamed through this computer, never to its disk.

    1. list   the objects, with size and ETag
    2. hash   the SHA-256 that S3 knows of an object; else it is read once, a chunk at a time
    3. send   each part is read again by its range, while it is sent

The marketplace never sees the credentials: boto3 finds them where it always does (environment, ~/.aws, SSO, the
machine's role), and they go to S3 alone. An object that changes meanwhile has another ETag, and ends the put.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

from jobs.client.errors import TransferFailed, UsageMistake
from jobs.client.gather import CHUNK_BYTES
from jobs.client.transport import backoff_seconds
from jobs.client.volumes.put import require_sound_paths
from jobs.client.volumes.read_keys import ReadKeys
from provider_agent.protocol import FILES_PER_ARTIFACT_MAX, ArtifactFile

SCHEME = "s3://"
CONNECT_SECONDS = 10
READ_SECONDS = 60
TRIES_MAX = 5
READ_AT_ONCE = 4
CHANGED = frozenset({"412", "PreconditionFailed"})
REFUSED = frozenset({"403", "404", "AccessDenied", "NoSuchBucket", "NoSuchKey", "InvalidAccessKeyId"})
REFUSED |= {"SignatureDoesNotMatch", "ExpiredToken", "PermanentRedirect", "AuthorizationHeaderMalformed"}
SHA256_BYTES = 32


@dataclass(frozen=True)
class S3Address:
    """Where the objects are."""

    bucket: str
    prefix: str  # without a first `/`

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.prefix}"


@dataclass(frozen=True)
class S3Object:
    """One object, and what its file is called in the volume."""

    key: str
    path: str
    size: int
    etag: str


@dataclass(frozen=True)
class S3File:
    """An object to send: `jobs.client.upload.FileToSend`."""

    source: S3Source
    key: str
    etag: str
    entry: ArtifactFile

    def read(self, offset: int, size: int) -> Iterator[bytes]:
        """These bytes of it; raises TransferFailed where it cannot be read, or is not what it was."""
        return self.source.read(self.key, self.etag, offset, size)


def parse_address(text: str) -> S3Address:
    """Of `s3://bucket/prefix`; raises UsageMistake."""
    bucket, _, prefix = text.removeprefix(SCHEME).partition("/")
    if not text.startswith(SCHEME) or not bucket or prefix.startswith("/"):
        raise UsageMistake(f"{text!r} is no address of S3 objects, such as s3://bucket/folder.")
    return S3Address(bucket, prefix)


class S3Source:
    """The objects below one address. Several threads may use it."""

    def __init__(self, address: S3Address, *, endpoint_url: str | None = None) -> None:
        self.address, self._endpoint_url = address, endpoint_url
        self._is_stopping = threading.Event()
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"max_attempts": TRIES_MAX, "mode": "standard"},
            s3={"addressing_style": "path"} if endpoint_url else {},
        )
        try:
            self._s3: Any = boto3.session.Session().client("s3", endpoint_url=endpoint_url, config=config)
        except (BotoCoreError, ValueError) as error:  # a profile or an endpoint that cannot be
            raise UsageMistake(f"S3 cannot be used: {error}") from error

    def list_objects(self) -> list[S3Object]:
        """Every object below the address, or the one that it names; raises UsageMistake."""
        prefix = self.address.prefix
        folder = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
        found: list[S3Object] = []
        for row in self._rows(prefix):
            key, size = str(row["Key"]), int(row["Size"])
            if key == prefix and not prefix.endswith("/"):
                path = key.rpartition("/")[2]
            elif key.startswith(folder):
                path = key.removeprefix(folder)
            else:
                continue  # `s3://bucket/data` is no prefix of `database/`
            if key.endswith("/") and size == 0:
                continue  # what consoles write where somebody makes a folder
            found.append(S3Object(key, path, size, str(row["ETag"])))
            if len(found) > FILES_PER_ARTIFACT_MAX:
                break
        if not found:
            raise UsageMistake(f"There is no object at {self.address}.")
        require_sound_paths([each.path for each in found])
        return found

    def hash_objects(self, found: Sequence[S3Object], *, on_bytes: Callable[[int], None]) -> list[S3File]:
        """Every object with its SHA-256; those that S3 has none of, and were not read before, are read once."""
        known = self.known()

        def hash_one(each: S3Object) -> S3File:
            sha256 = known.find(each.key, etag=each.etag, size=each.size) or self._sha256_of_s3(each)
            if sha256 is None:
                hashed = hashlib.sha256()
                for chunk in self.read(each.key, each.etag, 0, each.size):
                    hashed.update(chunk)
                    on_bytes(len(chunk))
                sha256 = hashed.hexdigest()
            else:
                on_bytes(each.size)
            known.remember(each.key, etag=each.etag, size=each.size, sha256=sha256)
            return S3File(self, each.key, each.etag, ArtifactFile(path=each.path, size=each.size, sha256=sha256))

        pool = ThreadPoolExecutor(READ_AT_ONCE)
        try:
            return list(pool.map(hash_one, found))
        except BaseException:
            self._is_stopping.set()  # what is being read ends with its next chunk
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            known.save()

    def known(self) -> ReadKeys:
        """What was read before of this address."""
        return ReadKeys(f"{self._endpoint_url or ''} {self.address}")

    def read(self, key: str, etag: str, offset: int, size: int) -> Iterator[bytes]:
        """These bytes of an object with this ETag, a chunk at a time; a lost connection is gone on from."""
        done, tries = 0, 0
        while done < size:
            try:
                for chunk in self._chunks(key, etag, offset + done, size - done):
                    done, tries = done + len(chunk), 0
                    yield chunk
                    if self._is_stopping.is_set():
                        raise TransferFailed(f"Reading {self.address} was given up.")
            except ClientError as error:
                raise _explained(error, f"{SCHEME}{self.address.bucket}/{key}") from error
            except BotoCoreError as error:
                problem = str(error)
            else:
                problem = "it ended too early"
            if done < size:
                tries += 1
                if tries >= TRIES_MAX:
                    raise TransferFailed(f"{SCHEME}{self.address.bucket}/{key} could not be read: {problem}")
                time.sleep(backoff_seconds(tries))

    def _chunks(self, key: str, etag: str, offset: int, size: int) -> Iterator[bytes]:
        span = f"bytes={offset}-{offset + size - 1}"
        answer = self._s3.get_object(Bucket=self.address.bucket, Key=key, Range=span, IfMatch=etag)
        with answer["Body"] as body:
            left = size
            while left and (chunk := body.read(min(CHUNK_BYTES, left))):
                left -= len(chunk)
                yield chunk

    def _rows(self, prefix: str) -> Iterator[dict[str, Any]]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.address.bucket, Prefix=prefix)
        try:
            for page in pages:
                yield from page.get("Contents", [])
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise UsageMistake(
                f"No credentials for {self.address}: {error}. They are found as the AWS command line finds them, such"
                " as by AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            ) from error
        except ClientError as error:
            raise _explained(error, str(self.address)) from error
        except BotoCoreError as error:
            raise TransferFailed(f"{self.address} cannot be listed: {error}") from error

    def _sha256_of_s3(self, each: S3Object) -> str | None:
        """What S3 itself reckoned of the whole object; None: it has no such sum, or does not say."""
        try:
            head = self._s3.head_object(
                Bucket=self.address.bucket, Key=each.key, IfMatch=each.etag, ChecksumMode="ENABLED"
            )
            digest = base64.b64decode(head.get("ChecksumSHA256", ""), validate=True)
        except (BotoCoreError, ClientError, ValueError):
            return None  # whoever reads it next learns why
        is_whole = head.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT"
        return digest.hex() if is_whole and len(digest) == SHA256_BYTES else None


def _explained(error: ClientError, what: str) -> TransferFailed | UsageMistake:
    code = str(error.response.get("Error", {}).get("Code", ""))
    text = str(error.response.get("Error", {}).get("Message", "") or error)
    if code in CHANGED:
        return TransferFailed(f"{what} changed while it was read: run the command again.")
    if code in REFUSED:
        return UsageMistake(f"S3 refuses {what}: {code}, {text}")
    return TransferFailed(f"{what} could not be read: {code}, {text}")
