"""One request to the marketplace: signed in, retried where that is safe, answered or raised as a named error."""

from __future__ import annotations

import random
import re
import time
import uuid
from typing import IO, Any

import httpx

from jobs.client.errors import NotSignedIn, ServerUnreachable, SoukApiError

ATTEMPTS_MAX = 6
BACKOFF_SECONDS = 0.25
BACKOFF_SECONDS_MAX = 8.0
RETRY_AFTER_SECONDS_MAX = 60.0
CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
STATUSES_RETRIED = frozenset({429, 502, 503, 504})
MESSAGE_CHARACTERS_MAX = 500
# What the API words for programs, as what a person at a terminal does about it.
REMEDIES = {"no_provider": "You do not rent out anything yet. `souk provider add-node` begins it."}
WITHOUT_TLS = "WRONG_VERSION_NUMBER"  # what OpenSSL says of an answer in plain text

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # not tab, newline, return


class Transport:
    """Requests below `server`/api/v1 with the key; the key is sent nowhere else, and redirects are not followed."""

    def __init__(self, server: str, key: str, *, attempts: int = ATTEMPTS_MAX) -> None:
        self.server = server.rstrip("/")
        self._key = key
        self._attempts = attempts
        self.http = httpx.Client(timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS), follow_redirects=False)

    def __repr__(self) -> str:
        return f"Transport({self.server!r})"

    def close(self) -> None:
        """Close all connections."""
        self.http.close()

    def get(self, path: str, *, read_seconds: float = READ_SECONDS, **params: Any) -> Any:
        """The JSON answer of a GET; parameters that are None are left out."""
        given = {name: value for name, value in params.items() if value is not None}
        # None and not {}, which would cut the path's own query.
        return self._request("GET", path, read_seconds=read_seconds, params=given or None)

    def save(self, path: str, into: IO[bytes], **params: Any) -> int:
        """Write the answer of a GET to `into` as it comes, whatever it is and however long; how many bytes that were.

        Not repeated: what was written cannot be unwritten. Raises ServerUnreachable when it ends too early.
        """
        headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        written = 0
        try:
            url = f"{self.server}/api/v1{path}"
            with self.http.stream("GET", url, headers=headers, params=params, timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                    _answer(response, self.server, is_signed_in=bool(self._key))
                for chunk in response.iter_bytes():
                    written += into.write(chunk)
        except httpx.TransportError as error:
            raise ServerUnreachable(f"{self.server} does not answer: {_why(error)}") from error
        return written

    def post(
        self, path: str, body: Any = None, *, idempotency_key: str | None = None, read_seconds: float = READ_SECONDS
    ) -> Any:
        """The JSON answer of a POST; its idempotency key makes repeating it harmless."""
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        given = body if body is not None else {}
        return self._request("POST", path, json=given, headers=headers, read_seconds=read_seconds)

    def delete(self, path: str) -> Any:
        """The JSON answer of a DELETE, which may be repeated."""
        return self._request("DELETE", path)

    def put(self, path: str, body: Any) -> Any:
        """The JSON answer of a PUT; its idempotency key makes repeating it harmless."""
        return self._request("PUT", path, json=body, headers={"Idempotency-Key": str(uuid.uuid4())})

    def patch(self, path: str, body: Any) -> Any:
        """The JSON answer of a PATCH, which may be repeated."""
        return self._request("PATCH", path, json=body)

    def _request(
        self, method: str, path: str, *, read_seconds: float = READ_SECONDS, headers: Any = None, **options: Any
    ) -> Any:
        url = path if path.startswith(self.server + "/") else f"{self.server}/api/v1{path}"
        sent = {"Accept": "application/json", **(headers or {})}
        if self._key:
            sent["Authorization"] = f"Bearer {self._key}"
        timeout = httpx.Timeout(read_seconds, connect=CONNECT_SECONDS)
        for attempt in range(1, self._attempts + 1):
            try:
                response = self.http.request(method, url, headers=sent, timeout=timeout, **options)
            except httpx.TransportError as error:
                if attempt == self._attempts:
                    raise ServerUnreachable(f"{self.server} does not answer: {_why(error)}") from error
                time.sleep(backoff_seconds(attempt))
                continue
            if response.status_code not in STATUSES_RETRIED or attempt == self._attempts:
                return _answer(response, self.server, is_signed_in=bool(self._key))
            time.sleep(max(_retry_after(response), backoff_seconds(attempt)))
        raise AssertionError("unreachable: the last attempt returns or raises")


def backoff_seconds(attempt: int) -> float:
    """Full jitter: anything from nothing to the doubled bound, so that many clients do not come back together."""
    # As provider_agent/protocol/backoff.py, which is not used here: its package takes a second to import.
    return random.uniform(0, min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2**attempt))


def without_controls(value: Any) -> Any:
    """JSON whose texts cannot steer a terminal: names, messages and logs were written by strangers."""
    if isinstance(value, str):
        return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict):
        return {without_controls(key): without_controls(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_controls(item) for item in value]
    return value


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("Retry-After", "")
    return min(float(text), RETRY_AFTER_SECONDS_MAX) if text.isdigit() else 0.0


def _answer(response: httpx.Response, server: str, *, is_signed_in: bool) -> Any:
    if response.is_success:
        if not response.content:
            return None
        try:
            return without_controls(response.json())
        except (ValueError, RecursionError) as error:
            raise ServerUnreachable(f"{server} answers, but not as a Souk marketplace does") from error
    code, message, details = _error(response)
    if response.status_code == 401 and not response.request.url.path.endswith("/login"):
        refused = f"The server does not take this key: {message} `souk login` makes a new one."
        raise NotSignedIn(refused if is_signed_in else "")
    if response.is_redirect:
        message = f"{server} sends elsewhere ({response.headers.get('Location', '')}); give that address with --server"
    raise SoukApiError(response.status_code, code, REMEDIES.get(code, message), details)


def _error(response: httpx.Response) -> tuple[str, str, dict[str, Any]]:
    """code, message, details as every error of the API has them; something readable for anything else."""
    try:
        body = without_controls(response.json())
        details = body.get("details")
        return str(body["code"]), str(body["message"]), details if isinstance(details, dict) else {}
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        text = f"the server answered {response.status_code} {response.reason_phrase}"
        return f"http_{response.status_code}", text[:MESSAGE_CHARACTERS_MAX], {}


def _why(error: httpx.TransportError) -> str:
    text = str(error) or type(error).__name__
    return f"{text} (no TLS there? Then its address begins with http://)" if WITHOUT_TLS in text else text
