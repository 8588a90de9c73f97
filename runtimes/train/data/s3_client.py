"""S3 as a training asks it: with the credentials of the job's environment alone; with patience, and in words."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Final

from runtimes.contract import S3_SCHEME
from runtimes.train.errors import BadData, TrainError

CHUNK_BYTES: Final = 128 << 10  # in memory, for each part that is being fetched; lost where a connection breaks
REQUESTS_AT_ONCE: Final = 8
PATIENCE_SECONDS: Final = 300.0  # for one request or part without a byte; as a whole a fetch may take any time
CONNECT_SECONDS: Final = 10
READ_SECONDS: Final = 60
BACKOFF_SECONDS: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 20.0
DOUBLINGS_MAX: Final = 10
REGION: Final = "us-east-1"  # where none is named: S3 says in its answer where a bucket is
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


class S3Client:
    """What asks S3. Threads may share it."""

    def __init__(self, env: Mapping[str, str], *, is_resumed: bool) -> None:
        """`env`: the job's. `is_resumed`: an attempt before this one could read what is asked for."""
        self._env, self._is_resumed = env, is_resumed
        self._has_answered = False

    @property
    def endpoint(self) -> str:
        """Empty for Amazon's own."""
        return self._env.get("AWS_ENDPOINT_URL_S3", "")

    def ask(self, name: str, operation: str, *, may_lack: bool = False, **parameters: Any) -> Any:
        """The answer to one request, a dict; with `may_lack` the error, where nothing is there or may be seen."""
        client, tries, give_up_at = self._client, 0, time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                answer = getattr(client, operation)(**parameters)
                self._has_answered = True
                return answer
            except self.errors as error:
                if may_lack and status_of(error) in (403, 404) and _code(error) not in PASSING:
                    return error
                tries += 1
                self.wait(name, error, tries, give_up_at)

    def read(self, each: S3Object, at: int, end: int) -> Iterator[bytes]:
        """The bytes from `at` to `end` of an object as it was pinned, until a connection breaks; raises `errors`."""
        span = f"bytes={at}-{end - 1}"
        answer = self._client.get_object(Bucket=each.bucket, Key=each.key, Range=span, IfMatch=each.etag)
        with closing(answer["Body"]) as body:
            if answer.get("ETag") != each.etag:
                raise self._changed(each)
            if not str(answer.get("ContentRange", "")).startswith(f"bytes {at}-"):
                raise self.refusal(f"{each}: what answers is no S3: it was asked for a part, and sends another one")
            while at < end and (chunk := body.read(min(CHUNK_BYTES, end - at))):
                at += len(chunk)
                yield chunk

    def wait(self, what: str, error: Exception | None, tries: int, give_up_at: float) -> None:
        """Until the next try, with jitter; raises what the error means, where another try will not help.

        `error`: None where an answer ended too early.
        """
        if error is not None and not self._may_pass(error):
            raise self.explained(what, error) from error
        if time.monotonic() > give_up_at:
            reason = f"{_code(error) or type(error).__name__}" if error is not None else "answers end too early"
            message = f"{what} could not be read for {PATIENCE_SECONDS:.0f} s: {reason}"
            # Where nothing ever answered the node's line may be to blame, which costs its provider minutes. Later it is
            # the customer's endpoint: it could hold the node for days, and break before anything is paid.
            raise (self.refusal(message) if self._has_answered else TrainError(message)) from error
        longest = min(BACKOFF_SECONDS * 2 ** min(tries, DOUBLINGS_MAX), BACKOFF_SECONDS_MAX)
        time.sleep(random.uniform(longest / 2, longest))

    def _may_pass(self, error: Exception) -> bool:
        from botocore import exceptions
        from urllib3.exceptions import HTTPError

        if isinstance(error, exceptions.ClientError):
            status = status_of(error)
            return status >= 500 or status == 429 or _code(error) in PASSING
        network = (exceptions.HTTPClientError, exceptions.ConnectionError, exceptions.IncompleteReadError, HTTPError)
        return isinstance(error, network)

    def explained(self, what: str, error: Exception) -> TrainError:
        """Of an answer that stays. S3's own text is not repeated: it may hold what was signed."""
        status, code = status_of(error), _code(error)
        if status == 412:
            return self._changed(what)
        if not status:
            return self.refusal(f"{what}: what answers is no S3 ({type(error).__name__}): see AWS_ENDPOINT_URL_S3")
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
        return self.refusal(f"S3 refuses {what} ({code or status}): {advice}")

    def _changed(self, what: object) -> TrainError:
        return self.refusal(f"{what} changed while it was read: data must stay as they are while a job runs")

    def refusal(self, message: str) -> TrainError:
        """Of what another try will not change: BadData, but where an attempt before this one could read the data."""
        return (
            TrainError(f"{message} (an attempt before this one could read it)")
            if self._is_resumed
            else BadData(message)
        )

    @property
    def _has_credentials(self) -> bool:
        return bool(self._env.get("AWS_ACCESS_KEY_ID"))

    @cached_property
    def errors(self) -> tuple[type[Exception], ...]:
        """Whatever a request may end with, beside a TrainError."""
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
            raise self.refusal("of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY the job has one alone: name both")
        endpoint = self.endpoint or None
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"total_max_attempts": 1},  # `wait` does that
            max_pool_connections=REQUESTS_AT_ONCE,
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
            raise self.refusal(
                f"S3 cannot be asked ({type(error).__name__}): see AWS_REGION and AWS_ENDPOINT_URL_S3 of the job"
            ) from error


def status_of(error: Exception) -> int:
    """The HTTP status of an answer that is an error; 0 where there was no answer."""
    response: Any = getattr(error, "response", None)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) if isinstance(response, dict) else 0
    return status if isinstance(status, int) else 0


def _code(error: Exception | None) -> str:
    """What S3 calls the error, where that is a plain word; else empty."""
    response: Any = getattr(error, "response", None)
    code = str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""
    return code if CODE.fullmatch(code) else ""
