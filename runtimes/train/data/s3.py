"""Data on S3: what lies at `s3://bucket/...` is listed and pinned, then fetched, then read as any other files.

    1. pin     every object that is read, by its address, size and ETag: tokens are known by these, without a fetch
    2. fetch   all of them, several parts at once; a connection that breaks is gone on from where it was
    3. remove  the files, once there are tokens

All of it happens in the job's own program and paid time, with the credentials of the job's environment alone: of the
node no file, profile or role is looked at, for the job of a stranger would act with its provider's rights. A file's
path here is made of numbers: nothing in a key leads anywhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any, Final

from runtimes.contract import is_s3_address, split_s3_address
from runtimes.train.data.documents import (
    DATA_BYTES_MAX,
    NAMED_MAX,
    SUFFIXES,
    Fetched,
    choose_of_dataset,
    unknown_kind,
)
from runtimes.train.data.s3_client import REQUESTS_AT_ONCE, S3Client, S3Object, is_ours, plain_etag, status_of
from runtimes.train.data.s3_watch import PATIENCE_MIN_BYTES
from runtimes.train.errors import BadData, TrainError
from runtimes.train.parallel import Progress

FOLDER: Final = ".s3-data"  # below the working directory; a name with a dot is nobody's output
OBJECTS_MAX: Final = 100_000  # that are listed, of all addresses together
PAGES_MAX: Final = 10_000
PART_BYTES: Final = 64 << 20  # of one request
TOKENS_BYTES_MAX: Final = 100 << 30  # of the disk that is kept free for tokens
RESERVE_BYTES: Final = 64 << 20  # for what else an attempt writes before it has tokens
WILDCARD: Final = re.compile(r"[*?\[]")
PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class S3Data:
    """What a training reads on S3. One thread uses it at a time."""

    def __init__(
        self,
        names: tuple[str, ...],
        work_dir: Path,
        *,
        is_resumed: bool,
        say: Callable[[str], None],
        env: Mapping[str, str] = os.environ,
        stop: threading.Event | None = None,
    ) -> None:
        """`names`: the data of the configuration, of which addresses count. `is_resumed`: an attempt before this one
        could read them. `say` prints a line of the log; `env` has the credentials; `stop` is set once the job
        is to end.
        """
        self._names = tuple(dict.fromkeys(name for name in names if is_s3_address(name)))
        self._folder = work_dir / FOLDER
        self._client, self._say = S3Client(env, is_resumed=is_resumed, stop=stop or threading.Event()), say
        self._listed = 0
        self._fetched: Fetched | None = None

    @property
    def is_fetched(self) -> bool:
        """Whether the objects were fetched, as they are not where their tokens are there already."""
        return self._fetched is not None

    def pin(self, name: str) -> list[tuple[str, ...]]:
        """What the tokens of one address depend on, in the order in which its objects are read. Raises as `fetch` does.

        Two objects of one ETag may differ, so the whole address counts. An S3 that gives one ETag to two contents of an
        object has the tokens of the first used for the second, but only its own customer's: no other has this cache.
        """
        endpoint = self._client.endpoint
        return [
            (each.suffix, endpoint, each.bucket, each.key, str(each.size), each.etag) for each in self._objects[name]
        ]

    @property
    def digest(self) -> str:
        """Of the pins of all addresses, in their order. Raises as `fetch` does."""
        return hashlib.sha256(json.dumps([self.pin(name) for name in self._names]).encode()).hexdigest()

    def fetch(self, progress: Progress) -> Fetched:
        """The files of each address, as they are read. They are fetched once, however often they are asked for.

        Raises BadData where S3 refuses them, has none, or has others than were pinned; a TrainError where an attempt
        before this one had them, as of a model of the hub: neither the input nor the checkpoint is to blame then. Where
        S3 never answered it raises TrainError, too; Stopped where the job is to end.
        """
        if self._fetched is None:
            progress.text = "listing the objects on S3"
            wanted = list(dict.fromkeys(each for found in self._objects.values() for each in found))
            paths = {each: self._folder / str(number) / _file_name(each) for number, each in enumerate(wanted)}
            self._fetch_all(paths, progress)
            self._fetched = {name: [paths[each] for each in found] for name, found in self._objects.items()}
        return self._fetched

    def remove(self) -> None:
        """Delete the files: what reads the data later reads the tokens."""
        shutil.rmtree(self._folder, ignore_errors=True)

    # 1. What there is.

    @cached_property
    def _objects(self) -> dict[str, list[S3Object]]:
        found = {name: self._find(name) for name in self._names}
        if sum(each.size for objects in found.values() for each in objects) > DATA_BYTES_MAX:
            raise self._client.refusal(
                f"the data on S3 has more than {DATA_BYTES_MAX >> 40} TiB, of all addresses together"
            )
        return found

    def _find(self, name: str) -> list[S3Object]:
        """The objects of one address, chosen and sorted as files of the same names would be."""
        bucket, key = split_s3_address(name)
        unseen: TrainError | None = None
        wildcard = WILDCARD.search(key)
        if wildcard is not None:
            rows = self._list(name, bucket, key[: wildcard.start()])
            matching = [each for each in rows if PurePosixPath(f"/{each.key}").match(f"/{key}")]
            found = sorted(matching, key=lambda each: PurePosixPath(each.key))
        else:
            found, unseen = self._find_one(name, bucket, key)
        if wildcard is None and not found:
            folder = f"{key}/" if key else ""
            rows = self._list(name, bucket, folder)
            below = {PurePosixPath(each.key.removeprefix(folder)): each for each in rows}
            if len(below) < len(rows):
                raise self._client.refusal(f"{name} has objects whose keys differ by more slashes alone")
            try:
                found = [below[path] for path in sorted(choose_of_dataset(name, below))]
            except BadData as error:
                raise self._client.refusal(str(error)) from error
        if not found:
            raise unseen or self._client.refusal(
                f"there is nothing to read at {name}: no object of this key, and none below it of a known kind"
                f" ({', '.join(SUFFIXES)})"
            )
        for each in found:
            if each.suffix not in SUFFIXES:
                raise self._client.refusal(str(unknown_kind(str(each))))
        return found

    def _find_one(self, name: str, bucket: str, key: str) -> tuple[list[S3Object], TrainError | None]:
        """The object of exactly this key, if there is one; else why it may not be seen, if S3 says so."""
        if PurePosixPath(key).suffix not in SUFFIXES:
            return [], None
        row = self._client.ask(name, "head_object", may_lack=True, Bucket=bucket, Key=key)
        if isinstance(row, Exception):
            return [], self._client.explained(name, row) if status_of(row) == 403 else None
        return [self._object(name, bucket, {**row, "Key": key, "Size": row.get("ContentLength")})], None

    def _list(self, name: str, bucket: str, prefix: str) -> list[S3Object]:
        found: list[S3Object] = []
        more: dict[str, Any] = {}
        for _ in range(PAGES_MAX):
            page = self._client.ask(name, "list_objects_v2", Bucket=bucket, Prefix=prefix, **more)
            if not page.keys() & {"Name", "IsTruncated", "Contents"}:
                raise self._client.refusal(f"{name}: what answers is no S3: its list says nothing")
            rows = page.get("Contents", [])
            self._listed += len(rows)
            # What consoles write where somebody makes a folder is no object to read.
            found += [self._object(name, bucket, row) for row in rows if not str(row.get("Key", "")).endswith("/")]
            if self._listed > OBJECTS_MAX:
                raise self._client.refusal(
                    f"{name}: more than {OBJECTS_MAX:,} objects are to be looked at: name a folder of fewer"
                    " (all addresses of the job count together)"
                )
            if not page.get("IsTruncated"):
                return found
            more = {"ContinuationToken": str(page.get("NextContinuationToken", ""))}
        raise self._client.refusal(
            f"{name}: its list has more than {PAGES_MAX:,} pages: name a folder of fewer objects"
        )

    def _object(self, name: str, bucket: str, row: Mapping[str, Any]) -> S3Object:
        key, size, etag = row.get("Key"), row.get("Size"), plain_etag(row.get("ETag"))
        if etag.startswith("W/"):
            raise self._client.refusal(f"{name}: this S3 gives weak ETags (W/), by which no content is known for sure")
        is_etag = bool(etag) and etag.isascii() and etag.isprintable()
        if not (isinstance(key, str) and isinstance(size, int) and size >= 0 and is_etag):
            raise self._client.refusal(f"{name}: what answers is no S3: it names an object without key, size or ETag")
        return S3Object(bucket, key, size, etag)

    # 2. The objects as files.

    def _fetch_all(self, paths: Mapping[S3Object, Path], progress: Progress) -> None:
        began, total, lock = time.monotonic(), sum(each.size for each in paths), threading.Lock()
        self.remove()  # of a start before this one
        self._folder.mkdir(parents=True)
        self._make_room(paths, total)
        progress.done, progress.total, progress.unit = 0, total, "bytes"

        def count(size: int) -> None:
            with lock:
                progress.done = (progress.done or 0) + size
                progress.text = f"fetched {progress.done / 1e6:,.1f} of {total / 1e6:,.1f} MB from S3"

        parts = [
            partial(self._fetch_part, each, path, (start, min(start + PART_BYTES, each.size)), count)
            for each, path in paths.items()
            for start in range(0, each.size, PART_BYTES)
        ]
        named = ", ".join(self._names[:NAMED_MAX]) + (", ..." if len(self._names) > NAMED_MAX else "")
        self._client.watch.run(
            parts,
            at_once=REQUESTS_AT_ONCE,
            come=lambda: progress.done or 0,
            wanted=total,
            late=lambda: self._client.late(
                named, f"less than {PATIENCE_MIN_BYTES >> 20} MiB came, or what was left of it"
            ),
        )
        progress.done = progress.total = None
        seconds = time.monotonic() - began
        self._say(f"data: fetched {total / 1e6:,.1f} MB of {named} in {seconds:.0f} s")

    def _make_room(self, paths: Mapping[S3Object, Path], total: int) -> None:
        """Files of their full size, before a byte is fetched; raises TrainError where the disk lacks room."""
        needed, free = total + min(total, TOKENS_BYTES_MAX) + RESERVE_BYTES, shutil.disk_usage(self._folder).free
        small = TrainError(
            f"the data on S3 has {total / 1e9:,.1f} GB, of which tokens need as much again, and this node has "
            f"{free / 1e9:,.1f} GB of free disk: ask for more by resources.disk"
        )
        if needed > free:
            raise small
        for each, path in paths.items():
            path.parent.mkdir()
            with path.open("wb") as file:
                try:
                    if each.size:
                        os.posix_fallocate(file.fileno(), 0, each.size)
                except OSError as error:
                    raise small from error

    def _fetch_part(
        self, each: S3Object, path: Path, span: tuple[int, int], count: Callable[[int], None], ended: threading.Event
    ) -> None:
        """Write the bytes of a span, its end excluded, into the file; each try goes on where the one before it was.

        `count` takes the bytes that have come since its last call. Leaves off once `ended` is set.
        """
        (at, end), tries = span, 0
        with path.open("r+b") as file:
            file.seek(at)
            while at < end and not ended.is_set():
                problem: Exception | None = None
                try:
                    for chunk in self._client.read(each, at, end):
                        file.write(chunk)
                        at, tries = at + len(chunk), 0
                        count(len(chunk))
                        if ended.is_set():
                            return
                except Exception as error:
                    if is_ours(error):
                        raise
                    problem = error
                if at < end:
                    tries += 1
                    self._client.wait(str(each), problem, tries, ended)


def _file_name(each: S3Object) -> str:
    """The name that messages show: the object's own where that is plain."""
    name = PurePosixPath(each.key).name
    return name if PLAIN_NAME.fullmatch(name) else f"object{each.suffix}"
