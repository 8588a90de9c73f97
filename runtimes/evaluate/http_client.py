"""POSTs JSON to one endpoint: bounded in bytes and time, tried again where that may help, and left at SIGTERM.

    1. wait while the endpoint wants everybody to wait (Retry-After)
    2. ask, on a connection that an earlier request left, or on a new one
    3. 200: the JSON object. 408, 409, 425, 429, 5xx or a connection that broke: again, later and later
    4. anything else is the customer's to know: BadData

No redirect is followed: the key would go to whoever the endpoint names. Whatever comes back is shown without the key,
also what the model writes. Which addresses can be reached is decided by the node's rules (`--egress`), not here.
"""

from __future__ import annotations

import http.client
import io
import json
import random
import socket
import ssl
import threading
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from runtimes.train.errors import BadData, Stopped

CONNECT_SECONDS = 10.0  # to each address of the host, and for each step of TLS
REQUEST_SECONDS_MAX = 600.0  # from the first byte sent to the last one received
LOOK_SECONDS = 0.5  # how late SIGTERM and the end of a request's time are seen
LEAVE_SECONDS = 3.5  # that a running request may take after SIGTERM: its answer is paid for already
TRIES_MAX = 12  # of one request: for about five minutes
TRIES_FIRST_MAX = 6  # while the endpoint has never answered, as its address may be wrong: for half a minute
DELAY_SECONDS = 0.5  # at least, before the second try; twice as long before each next one
DELAY_SECONDS_MAX = 60.0
RETRY_AFTER_SECONDS_MAX = 120.0
MESSAGE_CHARACTERS_MAX = 200
ERROR_BYTES_MAX = 64 * 1024  # of an answer that is none
IDLE_MAX = 32  # connections that are kept open
KEY_CHARACTERS_MIN = 8  # a shorter one would be cut out of texts that only look like it
KEY_CHARACTERS_MAX = 4096
HIDDEN = "[key]"
_AGAIN = frozenset({408, 409, 425, 429})
_DENIED = frozenset({401, 403})


class Refused(BadData):
    """The endpoint refuses the request and would refuse it again."""


class Client:
    """Asks one endpoint, from several threads at once."""

    def __init__(self, address: str, *, key: str | None, stop: threading.Event) -> None:
        """`address` up to /v1, without a slash at its end; raises BadData for a value that cannot be a key."""
        if key is not None and not is_key(key):
            raise BadData(f"a key must have {KEY_CHARACTERS_MIN} to {KEY_CHARACTERS_MAX} visible ASCII characters")
        self._parts = urlsplit(address)
        self._key, self._stop = key, stop
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._paused_until = 0.0  # for all threads
        self._has_answered = False
        self._tls = _make_tls() if self._parts.scheme == "https" else None

    def post(self, path: str, body: dict[str, Any], *, bytes_max: int) -> dict[str, Any]:
        """The answer's JSON object. Raises Stopped once SIGTERM came, Refused, and BadData when all tries failed."""
        data, failure, tries = json.dumps(body).encode(), "", 0
        while tries < (TRIES_MAX if self._has_answered else TRIES_FIRST_MAX):
            if tries:
                self._wait(random.uniform(0.5, 1.0) * min(DELAY_SECONDS * 2**tries, DELAY_SECONDS_MAX))
            self._wait(self._paused_until - time.monotonic())
            tries += 1
            try:
                status, headers, answer = self._send(path, data, bytes_max)
                if status == 200:
                    return self._read(answer, bytes_max)
            except ssl.SSLCertVerificationError as error:
                raise BadData(f"the certificate of {self.host} is not valid: {error.verify_message}") from error
            except (OSError, http.client.HTTPException) as error:
                failure = self.shown(str(error) or type(error).__name__)
                continue
            if status not in _AGAIN and status < 500:
                raise self._refusal(status, headers, answer)
            failure = f"status {status}"
            self._pause(headers.get("Retry-After"))
        raise BadData(f"{self.host} gave no answer in {tries} tries; the last one: {failure}")

    @property
    def host(self) -> str:
        """Host and port, for messages."""
        return self._parts.netloc

    def hidden(self, text: str) -> str:
        """The text without the key, if it is in it."""
        return text if self._key is None else text.replace(self._key, HIDDEN)

    def shown(self, text: str) -> str:
        """A text of the endpoint's for a log or an event: one line, cut, and without the key."""
        line = "".join(each if each.isprintable() else " " for each in self.hidden(text))
        return " ".join(line.split())[:MESSAGE_CHARACTERS_MAX]

    def _send(self, path: str, body: bytes, bytes_max: int) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and body; of a body that is too long, one byte more than it may have."""
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "souk-evaluate"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        connection = self._connection()
        is_whole = False
        try:
            connection.request("POST", self._parts.path + path, body, headers)
            response = connection.getresponse()
            most = bytes_max if response.status == 200 else ERROR_BYTES_MAX
            data = response.read(most + 1)
            if response.length and len(data) <= most:  # of what was announced, so much is missing
                raise http.client.IncompleteRead(data, response.length)
            is_whole = response.isclosed() and not response.will_close
            return response.status, response.headers, data
        finally:
            self._give_back(connection, is_usable=is_whole)

    def _connection(self) -> http.client.HTTPConnection:
        """A connection with a whole request's time before it."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = _connect(self._parts.hostname or "", self._parts.port, self._tls)
        watched: Any = connection.sock
        watched.begin(Limits(self._stop))
        return connection

    def _give_back(self, connection: http.client.HTTPConnection, *, is_usable: bool) -> None:
        if is_usable and connection.sock is not None:
            with self._lock:
                if len(self._idle) < IDLE_MAX:
                    self._idle.append(connection)
                    return
        connection.close()

    def _read(self, data: bytes, bytes_max: int) -> dict[str, Any]:
        """The JSON object; raises HTTPException for what may be whole the next time, and Refused."""
        if len(data) > bytes_max:
            raise Refused(f"{self.host} answers with more than {bytes_max} bytes")
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise http.client.HTTPException("the answer is no JSON") from error
        if not isinstance(found, dict):
            raise Refused(f"{self.host} answers with JSON that is no object")
        self._has_answered = True
        return found

    def _refusal(self, status: int, headers: http.client.HTTPMessage, data: bytes) -> BadData:
        if status in _DENIED:
            what = "refuses the key" if self._key else "wants a key"
            return BadData(f"{self.host} {what} (status {status})")
        if 300 <= status < 400:
            where = self.shown(headers.get("Location") or "nowhere")
            return BadData(f"{self.host} redirects to {where}, which is not followed: name the address itself")
        reason = self.shown(_message(data)) or "without a reason"
        return Refused(f"{self.host} refuses the request (status {status}): {reason}")

    def _pause(self, retry_after: str | None) -> None:
        """Keep every thread from asking for as long as the endpoint wants, within bounds."""
        seconds = min(_seconds(retry_after), RETRY_AFTER_SECONDS_MAX)
        if seconds > 0:
            with self._lock:
                self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    def _wait(self, seconds: float) -> None:
        if self._stop.wait(max(0.0, seconds)):
            raise Stopped("SIGTERM: this request is not answered")


class Limits:
    """Until when one request may go on."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._until = time.monotonic() + REQUEST_SECONDS_MAX
        self._is_leaving = False

    def check(self) -> None:
        """Raise TimeoutError when its time is over, and Stopped a while after SIGTERM."""
        if self._stop.is_set() and not self._is_leaving:
            self._is_leaving = True
            self._until = min(self._until, time.monotonic() + LEAVE_SECONDS)
        if time.monotonic() < self._until:
            return
        if self._is_leaving:
            raise Stopped("SIGTERM: this request is not answered")
        raise TimeoutError(f"no whole answer in {REQUEST_SECONDS_MAX:.0f} s")


class WatchedSocket:
    """What http.client needs of a socket; it looks at the request's limits while it sends and receives."""

    def __init__(self, plain: socket.socket) -> None:
        plain.settimeout(LOOK_SECONDS)
        self._socket = plain
        self._limits: Limits | None = None

    def begin(self, limits: Limits) -> None:
        """From now on these count."""
        self._limits = limits

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        left = memoryview(data)
        while left:
            self._check()
            with suppress(TimeoutError):
                left = left[self._socket.send(left) :]

    def receive_into(self, buffer: Any) -> int:
        """Bytes received into the buffer; 0 at the end."""
        while True:
            self._check()
            with suppress(TimeoutError):
                return self._socket.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What http.client reads an answer from."""
        return io.BufferedReader(_Receiver(self))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _check(self) -> None:
        if self._limits is not None:
            self._limits.check()


class _Receiver(io.RawIOBase):
    def __init__(self, watched: WatchedSocket) -> None:
        self._watched = watched

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._watched.receive_into(buffer)


def is_key(value: str) -> bool:
    """Whether it can be sent in a header, and be told from ordinary text."""
    is_long = KEY_CHARACTERS_MIN <= len(value) <= KEY_CHARACTERS_MAX
    return is_long and all("!" <= each <= "~" for each in value)


def _connect(host: str, port: int | None, tls: ssl.SSLContext | None) -> http.client.HTTPConnection:
    if tls is None:
        connection = http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS)
    else:
        connection = http.client.HTTPSConnection(host, port, timeout=CONNECT_SECONDS, context=tls)
    connection.connect()
    connection.auto_open = 0  # one that breaks is not opened again unwatched
    unwatched: Any = connection
    unwatched.sock = WatchedSocket(connection.sock)
    return connection


def _make_tls() -> ssl.SSLContext:
    """The system's certificate authorities, and those that Python's packages bring: slim images have few."""
    context = ssl.create_default_context()
    with suppress(ImportError, OSError):
        import certifi

        context.load_verify_locations(certifi.where())
    return context


def _message(data: bytes) -> str:
    """What an error's body says."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    error = body.get("error", body.get("message")) if isinstance(body, dict) else None
    if isinstance(error, dict):
        error = error.get("message")
    return error if isinstance(error, str) else ""


def _seconds(retry_after: str | None) -> float:
    """Seconds from a header's number or moment; 0 for none."""
    text = (retry_after or "").strip()[:64]
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return parsedate_to_datetime(text).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return 0.0
