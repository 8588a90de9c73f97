"""S3 as a training asks it: with the credentials of the job's environment alone; with patience, and in words."""

from __future__ import annotations

import os
import random
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from runtimes.contract import S3_EXAMPLE, S3_SCHEME, S3_VARIABLES, endpoint_mistake
from runtimes.train.data import s3_watch
from runtimes.train.data.s3_watch import Watch
from runtimes.train.errors import BadData, TrainError

CHUNK_BYTES: Final = 128 << 10  # in memory, for each part that is being fetched; lost where a connection breaks
REQUESTS_AT_ONCE: Final = 8
CONNECT_SECONDS: Final = 10
READ_SECONDS: Final = 60
BACKOFF_SECONDS: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 20.0
DOUBLINGS_MAX: Final = 10
REGION: Final = "us-east-1"  # where none is named: S3 says in its answer where a bucket is
CODE: Final = re.compile(r"[A-Za-z0-9]{1,40}")
SKEWED: Final = "RequestTimeTooSkewed"  # of the clock, which is the node's
# Refused now, and perhaps not a moment later.
PASSING: Final = frozenset({"RequestTimeout", SKEWED, "SlowDown", "Throttling", "OperationAborted"})
OF_CREDENTIALS: Final = frozenset({"ExpiredToken", "InvalidToken", "TokenRefreshRequired"})
OF_REGION: Final = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
NO_TLS_MARKS: Final = ("CERTIFICATE_VERIFY_FAILED", "CERTIFICATE VERIFY FAILED", "WRONG_VERSION_NUMBER")


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
    """What asks S3. Threads may share it, but for `ask`."""

    def __init__(self, env: Mapping[str, str], *, is_resumed: bool, stop: threading.Event) -> None:
        """`env`: the job's. `is_resumed`: an attempt before this one could read what is asked for. `stop`: set when
        the job is to end.
        """
        self._env, self._is_resumed = env, is_resumed
        self.watch = Watch(stop, give_up=self._given_up)
        self._has_answered = self._has_served = False
        self._problem: tuple[str, str] | None = None  # the last one that may pass: of what, and why

    @property
    def endpoint(self) -> str:
        """Empty for Amazon's own."""
        return self._env.get("AWS_ENDPOINT_URL_S3", "")

    def ask(self, name: str, operation: str, *, may_lack: bool = False, **parameters: Any) -> Any:
        """The answer to one request, a dict; with `may_lack` the error, where nothing is there or may be seen.

        Raises as S3Data.fetch.
        """
        client = self._client

        def answered(ended: threading.Event) -> Any:
            tries = 0
            while not ended.is_set():
                try:
                    return getattr(client, operation)(**parameters)
                except Exception as error:
                    if is_ours(error):
                        raise
                    if may_lack and status_of(error) in (403, 404) and _code(error) not in PASSING:
                        return error
                    tries += 1
                    self.wait(name, error, tries, ended)
            return None

        self._problem = None
        [answer] = self.watch.run([answered], late=lambda: self.late(name, "no answer"))
        self._has_served |= not isinstance(answer, Exception)
        return answer

    def read(self, each: S3Object, at: int, end: int) -> Iterator[bytes]:
        """The bytes from `at` to `end` of an object as it was pinned, until a connection breaks; raises anything."""
        span = f"bytes={at}-{end - 1}"
        answer = self._client.get_object(Bucket=each.bucket, Key=each.key, Range=span, IfMatch=f'"{each.etag}"')
        with closing(answer["Body"]) as body:
            if plain_etag(answer.get("ETag")) != each.etag:
                raise self._changed(each)
            if not str(answer.get("ContentRange", "")).startswith(f"bytes {at}-"):
                raise self.refusal(f"{each}: what answers is no S3: it was asked for a part, and sends another one")
            while at < end and (chunk := body.read(min(CHUNK_BYTES, end - at))):
                at, self._problem = at + len(chunk), None
                yield chunk

    def wait(self, what: str, error: Exception | None, tries: int, ended: threading.Event) -> None:
        """Until the next try, with jitter, or until `ended`; raises what an error means that another try will not help.

        `error`: None where an answer ended too early.
        """
        if error is not None and not self._may_pass(error):
            raise self.explained(what, error) from error
        why = (_code(error) or type(error).__name__) if error is not None else "answers end too early"
        self._problem = (what, f"{why}: this node's clock and that of S3 differ" if why == SKEWED else why)
        longest = min(BACKOFF_SECONDS * 2 ** min(tries, DOUBLINGS_MAX), BACKOFF_SECONDS_MAX)
        ended.wait(random.uniform(longest / 2, longest))

    def late(self, what: str, why: str) -> str:
        """What was waited for in vain: a try that has failed says more than `why`."""
        what, why = self._problem or (what, why)
        return f"{what} could not be read for {s3_watch.PATIENCE_SECONDS:.0f} s: {why}"

    def _given_up(self, message: str) -> TrainError:
        """Where nothing ever answered the node's line may be to blame, which costs its provider minutes; or its clock.

        Later it is the customer's endpoint: it could hold the node for days, and break before anything is paid.
        """
        is_clock = self._problem is not None and self._problem[1].startswith(SKEWED)
        is_nobodys = not self._has_answered or (is_clock and not self._has_served)
        return TrainError(message) if is_nobodys else self.refusal(message)

    def _may_pass(self, error: Exception) -> bool:
        from botocore import exceptions
        from urllib3.exceptions import HTTPError

        if isinstance(error, exceptions.ClientError):
            status = status_of(error)
            return status >= 500 or status == 429 or _code(error) in PASSING
        if isinstance(error, exceptions.SSLError) and any(mark in str(error).upper() for mark in NO_TLS_MARKS):
            return False
        network = (exceptions.HTTPClientError, exceptions.ConnectionError, exceptions.IncompleteReadError, HTTPError)
        return isinstance(error, network)

    def explained(self, what: str, error: Exception) -> TrainError:
        """Of an answer that stays. S3's own text is not repeated: it may hold what was signed."""
        from botocore.exceptions import SSLError

        status, code = status_of(error), _code(error)
        if isinstance(error, SSLError):
            host = urlsplit(self.endpoint).hostname
            message = f"the certificate of {host or 'S3'} does not fit, or it speaks no TLS"
            return self.refusal(f"{what}: {message}: see AWS_ENDPOINT_URL_S3") if host else TrainError(message)
        if not status:
            return self.refusal(f"{what}: what answers is no S3 ({type(error).__name__}): see AWS_ENDPOINT_URL_S3")
        if status == 412:
            return self._changed(what)
        if status == 416:
            return self.refusal(f"{what} became shorter while it was read: data must stay as they are while a job runs")
        return self.refusal(f"S3 refuses {what} ({code or status}): {self._advice(status, code)}")

    def _advice(self, status: int, code: str) -> str:
        if status == 404:
            return "there is no such bucket or object"
        if self.endpoint and 300 <= status < 400:
            return "the endpoint sends on to another address: name that one as AWS_ENDPOINT_URL_S3"
        if 300 <= status < 400 or code in OF_REGION:
            return "AWS_REGION must be the bucket's"
        # An error of a HEAD has no words: its code is its status.
        if status not in (401, 403) and code not in OF_CREDENTIALS and code != "400":
            return "see the address, AWS_REGION and AWS_ENDPOINT_URL_S3 of the job"
        if not self._has_credentials:
            return (
                "the job has no credentials: name AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY under secrets, "
                "and AWS_SESSION_TOKEN where there is one"
            )
        return (
            "the job's credentials must let it list and read there (s3:ListBucket, s3:GetObject) for as long as it "
            "runs; AWS_REGION must be the bucket's"
        )

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
    def _client(self) -> Any:
        """A client that knows what the job's environment says, and nothing of the node. Threads may share it."""
        try:
            import botocore.session
            from botocore import UNSIGNED
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError as error:
            raise TrainError("data on S3 need botocore, which this node's runtime lacks") from error
        for name in sorted(S3_VARIABLES):
            value = self._env.get(name, "")
            if not (value.isascii() and value.isprintable()):
                raise self.refusal(f"{name} of the job has a line break, or a character that none of its kind has")
        key, secret = self._env.get("AWS_ACCESS_KEY_ID", ""), self._env.get("AWS_SECRET_ACCESS_KEY", "")
        if bool(key) != bool(secret):
            raise self.refusal("of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY the job has one alone: name both")
        endpoint = self.endpoint or None
        if endpoint and (mistake := endpoint_mistake(endpoint, has_key=bool(key), example=S3_EXAMPLE)):
            raise self.refusal(f"S3 cannot be asked: AWS_ENDPOINT_URL_S3 of the job {mistake}")
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"total_max_attempts": 1},  # `wait` does that
            defaults_mode="legacy",
            proxies={},
            user_agent_appid="",
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
            client = session.create_client(
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
        client.meta.events.register("before-parse.s3", self._note_answer)
        client.meta.events.register_first("needs-retry.s3", self._bound_redirects)
        return client

    def _note_answer(self, **_: Any) -> None:
        self._has_answered = True

    def _bound_redirects(self, request_dict: Mapping[str, Any], operation: Any, **_: Any) -> None:
        """Of Amazon's own S3 botocore finds a bucket's region by HeadBucket, which would ask for its own without end.

        No other S3 sends anybody anywhere.
        """
        if self.endpoint or operation.name == "HeadBucket":
            request_dict["context"].setdefault("s3_redirect", {})["redirected"] = True


def is_ours(error: Exception) -> bool:
    """Whether an error tells nothing of the server: some of botocore's of the line are OSErrors, as are the disk's."""
    from botocore.exceptions import BotoCoreError

    return isinstance(error, TrainError | MemoryError | OSError) and not isinstance(error, BotoCoreError)


def plain_etag(etag: object) -> str:
    """Without quotes, which not every S3 sends; empty where there is none."""
    return etag.strip().strip('"') if isinstance(etag, str) else ""


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
