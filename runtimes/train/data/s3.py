"""Data on S3: what lies at `s3://bucket/...` is listed and pinned, then fetched, then read as any other files.

    1. pin     every object that is read, by its address, size and ETag: tokens are known by these, without a fetch
    2. fetch   all of them, several parts at once; a connection that breaks is gone on from where it was
    3. remove  the files, once there are tokens

All of it happens in the job's own program and paid time, with the credentials of the job's environment alone: of the
node no file, profile or role is looked at, for the job of a stranger would act with its provider's rights. A file's
path here is made of numbers: nothing in a key leads anywhere.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Final

from runtimes.contract import S3_SCHEME, is_s3_address, split_s3_address
from runtimes.train.data.documents import (
    DATA_BYTES_MAX,
    NAMED_MAX,
    SUFFIXES,
    Fetched,
    choose_of_dataset,
    unknown_kind,
)
from runtimes.train.errors import BadData, TrainError
from runtimes.train.parallel import Progress

FOLDER: Final = ".s3-data"  # below the working directory; a name with a dot is nobody's output
OBJECTS_MAX: Final = 100_000  # that are listed, of all addresses together
PAGES_MAX: Final = 10_000
PART_BYTES: Final = 64 << 20  # of one request
CHUNK_BYTES: Final = 128 << 10  # in memory, for each part that is being fetched; lost where a connection breaks
PARTS_AT_ONCE: Final = 8
PATIENCE_SECONDS: Final = 300.0  # for one request or part without a byte; as a whole a fetch may take any time
CONNECT_SECONDS: Final = 10
READ_SECONDS: Final = 60
BACKOFF_SECONDS: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 20.0
REGION: Final = "us-east-1"  # where none is named: S3 says in its answer where a bucket is
WILDCARD: Final = re.compile(r"[*?\[]")
PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
CODE: Final = re.compile(r"[A-Za-z0-9]{1,40}")
# Refused now, and perhaps not a moment later; of the clock it is the node's fault.
PASSING: Final = frozenset({"RequestTimeout", "RequestTimeTooSkewed", "SlowDown", "Throttling", "OperationAborted"})


@dataclass(frozen=True, slots=True)
class S3Object:
    """One object as it was when it was pinned; its size is in bytes."""

    bucket: str
    key: str
    size: int
    etag: str

    def __str__(self) -> str:
        """For messages: a key may hold anything."""
        return f"{S3_SCHEME}{self.bucket}/{self.key}".encode("unicode_escape").decode()[:300]

    @property
    def suffix(self) -> str:
        """One of SUFFIXES."""
        return PurePosixPath(self.key).suffix


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
    ) -> None:
        """`names`: the data of the configuration, of which addresses count. `is_resumed`: an attempt before this one
        could read them. `say` prints a line of the log; `env` has the credentials.
        """
        self._names = tuple(dict.fromkeys(name for name in names if is_s3_address(name)))
        self._folder = work_dir / FOLDER
        self._is_resumed, self._say, self._env = is_resumed, say, env
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
        endpoint = self._env.get("AWS_ENDPOINT_URL_S3", "")
        return [
            (each.suffix, endpoint, each.bucket, each.key, str(each.size), each.etag) for each in self._objects[name]
        ]

    def fetch(self, progress: Progress) -> Fetched:
        """The files of each address, as they are read. They are fetched once, however often they are asked for.

        Raises BadData where S3 refuses them, has none, or has others than were pinned; a TrainError where an attempt
        before this one had them, as of a model of the hub: neither the input nor the checkpoint is to blame then. Where
        S3 is away it raises TrainError, too.
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
            raise self._refusal(f"the data on S3 has more than {DATA_BYTES_MAX >> 40} TiB")
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
                raise self._refusal(f"{name} has objects whose keys differ by more slashes alone")
            found = [below[path] for path in sorted(choose_of_dataset(name, below))]
        if not found:
            raise unseen or self._refusal(
                f"there is nothing to read at {name}: no object of this key, and none below it of a known kind"
                f" ({', '.join(SUFFIXES)})"
            )
        for each in found:
            if each.suffix not in SUFFIXES:
                raise self._refusal(str(unknown_kind(str(each))))
        return found

    def _find_one(self, name: str, bucket: str, key: str) -> tuple[list[S3Object], TrainError | None]:
        """The object of exactly this key, if there is one; else why it may not be seen, if S3 says so."""
        if PurePosixPath(key).suffix not in SUFFIXES:
            return [], None
        row = self._ask(name, "head_object", may_lack=True, Bucket=bucket, Key=key)
        if isinstance(row, Exception):
            return [], self._explained(name, row) if _status(row) == 403 else None
        return [self._object(name, bucket, {**row, "Key": key, "Size": row.get("ContentLength")})], None

    def _list(self, name: str, bucket: str, prefix: str) -> list[S3Object]:
        found: list[S3Object] = []
        more: dict[str, Any] = {}
        for _ in range(PAGES_MAX):
            page = self._ask(name, "list_objects_v2", Bucket=bucket, Prefix=prefix, **more)
            rows = page.get("Contents", [])
            self._listed += len(rows)
            # What consoles write where somebody makes a folder is no object to read.
            found += [self._object(name, bucket, row) for row in rows if not str(row.get("Key", "")).endswith("/")]
            if self._listed > OBJECTS_MAX:
                break
            if not page.get("IsTruncated"):
                return found
            more = {"ContinuationToken": str(page.get("NextContinuationToken", ""))}
        raise self._refusal(f"{name}: more than {OBJECTS_MAX:,} objects are to be looked at: name a folder of fewer")

    def _object(self, name: str, bucket: str, row: Mapping[str, Any]) -> S3Object:
        key, size, etag = row.get("Key"), row.get("Size"), row.get("ETag")
        if not (isinstance(key, str) and isinstance(size, int) and size >= 0 and isinstance(etag, str) and etag):
            raise self._refusal(f"{name}: what answers is no S3: it names an object without key, size or ETag")
        return S3Object(bucket, key, size, etag)

    # 2. The objects as files.

    def _fetch_all(self, paths: Mapping[S3Object, Path], progress: Progress) -> None:
        began, total, lock = time.monotonic(), sum(each.size for each in paths), threading.Lock()
        self.remove()  # of a start before this one
        self._folder.mkdir(parents=True)
        if total > (free := shutil.disk_usage(self._folder).free):
            raise TrainError(
                f"the data on S3 has {total / 1e9:,.1f} GB, and this node has {free / 1e9:,.1f} GB of free disk: "
                "ask for more by resources.disk"
            )
        for each, path in paths.items():
            path.parent.mkdir()
            with path.open("wb") as file:
                file.truncate(each.size)
        progress.done, progress.total, progress.unit = 0, total, "bytes"

        stopping = threading.Event()

        def count(size: int) -> bool:
            """Whether to go on."""
            with lock:
                progress.done = (progress.done or 0) + size
                progress.text = f"fetched {progress.done / 1e6:,.1f} of {total / 1e6:,.1f} MB from S3"
            return not stopping.is_set()

        pool = ThreadPoolExecutor(PARTS_AT_ONCE)
        parts = [
            pool.submit(self._fetch_part, each, path, start, min(start + PART_BYTES, each.size), count)
            for each, path in paths.items()
            for start in range(0, each.size, PART_BYTES)
        ]
        try:
            for part in wait(parts, return_when=FIRST_EXCEPTION).done:
                part.result()
        finally:
            stopping.set()  # of a fetch that failed: what is still being read ends with its next chunk or try
            pool.shutdown(wait=False, cancel_futures=True)
        progress.done = progress.total = None
        seconds = time.monotonic() - began
        named = ", ".join(self._names[:NAMED_MAX]) + (", ..." if len(self._names) > NAMED_MAX else "")
        self._say(f"data: fetched {total / 1e6:,.1f} MB of {named} in {seconds:.0f} s")

    def _fetch_part(self, each: S3Object, path: Path, at: int, end: int, count: Callable[[int], bool]) -> None:
        """Write the bytes from `at` to `end` into the file; each try goes on where the one before it was.

        `count` takes the bytes that have come since its last call, and returns whether to go on.
        """
        tries, give_up_at = 0, time.monotonic() + PATIENCE_SECONDS
        with path.open("r+b") as file:
            file.seek(at)
            while at < end and count(0):
                problem: Exception | None = None
                try:
                    for chunk in self._chunks(each, at, end):
                        file.write(chunk)
                        at += len(chunk)
                        tries, give_up_at = 0, time.monotonic() + PATIENCE_SECONDS
                        if not count(len(chunk)):
                            return
                except self._errors as error:
                    problem = error
                if at < end:
                    tries += 1
                    self._wait(str(each), problem, tries, give_up_at)

    def _chunks(self, each: S3Object, at: int, end: int) -> Iterator[bytes]:
        span = f"bytes={at}-{end - 1}"
        answer = self._client.get_object(Bucket=each.bucket, Key=each.key, Range=span, IfMatch=each.etag)
        with closing(answer["Body"]) as body:
            if answer.get("ETag") != each.etag:
                raise self._changed(each)
            if not str(answer.get("ContentRange", "")).startswith(f"bytes {at}-"):
                raise self._refusal(f"{each}: what answers is no S3: it was asked for a part, and sends another one")
            while at < end and (chunk := body.read(min(CHUNK_BYTES, end - at))):
                at += len(chunk)
                yield chunk

    # How S3 is asked.

    def _ask(self, name: str, operation: str, *, may_lack: bool = False, **parameters: Any) -> Any:
        """The answer to one request, a dict; with `may_lack` the error, where nothing is there or may be seen."""
        client, tries, give_up_at = self._client, 0, time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return getattr(client, operation)(**parameters)
            except self._errors as error:
                if may_lack and _status(error) in (403, 404) and _code(error) not in PASSING:
                    return error
                tries += 1
                self._wait(name, error, tries, give_up_at)

    def _wait(self, what: str, error: Exception | None, tries: int, give_up_at: float) -> None:
        """Until the next try, with jitter; raises what the error means, where another try will not help.

        `error`: None where an answer ended too early.
        """
        if error is not None and not self._may_pass(error):
            raise self._explained(what, error) from error
        if time.monotonic() > give_up_at:
            reason = f"{_code(error) or type(error).__name__}" if error is not None else "answers end too early"
            raise TrainError(f"{what} could not be read for {PATIENCE_SECONDS:.0f} s: {reason}") from error
        longest = min(BACKOFF_SECONDS * 2 ** min(tries, 10), BACKOFF_SECONDS_MAX)
        time.sleep(random.uniform(longest / 2, longest))

    def _may_pass(self, error: Exception) -> bool:
        from botocore import exceptions
        from urllib3.exceptions import HTTPError

        if isinstance(error, exceptions.ClientError):
            status = _status(error)
            return status >= 500 or status == 429 or _code(error) in PASSING
        network = (exceptions.HTTPClientError, exceptions.ConnectionError, exceptions.IncompleteReadError, HTTPError)
        return isinstance(error, network)

    def _explained(self, what: str, error: Exception) -> TrainError:
        """Of an answer that stays. S3's own text is not repeated: it may hold what was signed."""
        status, code = _status(error), _code(error)
        if status == 412:
            return self._changed(what)
        if not status:
            return self._refusal(f"{what}: what answers is no S3 ({type(error).__name__}): see AWS_ENDPOINT_URL_S3")
        if status == 404:
            advice = "there is no such bucket or object"
        elif not self._has_credentials:
            advice = (
                "the job has no credentials: name AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY under secrets, "
                "and AWS_SESSION_TOKEN where there is one"
            )
        else:
            advice = (
                "the job's credentials must let it list and read there (s3:ListBucket, s3:GetObject) for as long as it "
                "runs; AWS_REGION must be the bucket's"
            )
        return self._refusal(f"S3 refuses {what} ({code or status}): {advice}")

    def _changed(self, what: object) -> TrainError:
        return self._refusal(f"{what} changed while it was read: data must stay as they are while a job runs")

    def _refusal(self, message: str) -> TrainError:
        return (
            TrainError(f"{message} (an attempt before this one could read it)")
            if self._is_resumed
            else BadData(message)
        )

    @property
    def _has_credentials(self) -> bool:
        return bool(self._env.get("AWS_ACCESS_KEY_ID"))

    @cached_property
    def _errors(self) -> tuple[type[Exception], ...]:
        """Whatever a request may end with."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError
        from urllib3.exceptions import HTTPError

        return (BotoCoreError, ClientError, ResponseParserError, HTTPError, ValueError)

    @cached_property
    def _client(self) -> Any:
        """A client that knows what the job's environment says, and nothing of the node. Threads may share it."""
        try:
            import botocore.session
            from botocore import UNSIGNED
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError as error:
            raise TrainError("data on S3 need botocore, which this node's runtime lacks") from error
        key, secret = self._env.get("AWS_ACCESS_KEY_ID", ""), self._env.get("AWS_SECRET_ACCESS_KEY", "")
        if bool(key) != bool(secret):
            raise self._refusal("of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY the job has one alone: name both")
        endpoint = self._env.get("AWS_ENDPOINT_URL_S3") or None
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"total_max_attempts": 1},  # `_wait` does that
            max_pool_connections=PARTS_AT_ONCE,
            ignore_configured_endpoint_urls=True,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"} if endpoint else {},
            **({} if key else {"signature_version": UNSIGNED}),
        )
        # The node's own profile and files, wherever its variables say they are, are those of nobody.
        nowhere = {"config_file": os.devnull, "credentials_file": os.devnull, "profile": None}
        session = botocore.session.Session(session_vars={name: (None, None, to, None) for name, to in nowhere.items()})
        session.register_component("credential_provider", None)  # nor is any role asked for, by mistake
        try:
            return session.create_client(
                "s3",
                region_name=self._env.get("AWS_REGION") or self._env.get("AWS_DEFAULT_REGION") or REGION,
                endpoint_url=endpoint,
                aws_access_key_id=key or None,
                aws_secret_access_key=secret or None,
                aws_session_token=(self._env.get("AWS_SESSION_TOKEN") or None) if key else None,
                config=config,
            )
        except (BotoCoreError, ValueError) as error:
            raise self._refusal(
                f"S3 cannot be asked ({type(error).__name__}): see AWS_REGION and AWS_ENDPOINT_URL_S3 of the job"
            ) from error


def _file_name(each: S3Object) -> str:
    """The name that messages show: the object's own where that is plain."""
    name = PurePosixPath(each.key).name
    return name if PLAIN_NAME.fullmatch(name) else f"object{each.suffix}"


def _status(error: Exception) -> int:
    """The HTTP status of an answer that is an error; 0 where there was no answer."""
    response: Any = getattr(error, "response", None)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) if isinstance(response, dict) else 0
    return status if isinstance(status, int) else 0


def _code(error: Exception | None) -> str:
    """What S3 calls the error, where that is a plain word; else empty."""
    response: Any = getattr(error, "response", None)
    code = str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""
    return code if CODE.fullmatch(code) else ""
