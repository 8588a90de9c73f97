"""POSTs JSON to one endpoint: bounded in bytes and time, tried again where that may help, and left at SIGTERM.

    1. wait while the endpoint wants everybody to wait (Retry-After)
    2. ask, on a connection that an earlier request left, or on a new one
    3. 200: the JSON object. 408, 409, 425, 429, 5xx or a connection that broke: again, later and later
    4. anything else is the customer's to know: BadData

No redirect is followed: the key would go to whoever the endpoint names. Whatever comes back is shown without the key,
also what the model writes. Only public addresses are connected to: not every node has rules that filter (`--egress`).

http.client speaks HTTP here, over sockets of our own: timeouts of libraries count for each read, so that a trickle of
bytes has no end and SIGTERM is not seen, and their connections would have to be replaced by the same sockets.
"""

from __future__ import annotations

import http.client
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

from runtimes.contract import LOOPBACK_HOSTS, is_public_address
from runtimes.evaluate.watched_socket import Limits, WatchedSocket
from runtimes.train.errors import BadData, Stopped

CONNECT_SECONDS = 10.0  # to all addresses of the host together, and again for TLS
ADDRESSES_MAX = 4  # of a host that are tried
POST_SECONDS_MAX = 900.0  # of all tries of a request, with the waits between them
TELLING_SECONDS = 1.0  # a last try that was given less says nothing of the endpoint
REACH_SECONDS_MAX = 60.0  # of these, while nobody could be connected to: the address may be wrong
DELAY_SECONDS = 0.5  # at least, before the second try; twice as long before each next one
DELAY_SECONDS_MAX = 60.0
DOUBLINGS_MAX = 16
RETRY_AFTER_SECONDS_MAX = 120.0
SPREAD_SECONDS = 1.0  # within which the threads ask again after such a wait
FRAMING_BYTES_MAX = 256 * 1024  # of headers and marks of chunks, beside as many bytes again as the answer may have
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
        self._host = self._parts.hostname or ""
        self._port = self._parts.port or (443 if self._parts.scheme == "https" else 80)
        self._key, self._stop = key, stop
        self._idle: list[WatchedSocket] = []
        self._lock = threading.Lock()
        self._paused_until = 0.0  # for all threads
        self._was_reached = False
        self._tls = _make_tls() if self._parts.scheme == "https" else None

    def post(
        self, path: str, body: dict[str, Any], *, bytes_max: int, seconds: float = POST_SECONDS_MAX
    ) -> dict[str, Any]:
        """The answer's JSON object, within `seconds`, all tries together.

        Raises Stopped once SIGTERM came, Refused, and BadData when all tries failed.
        """
        data, failure, tries = json.dumps(body).encode(), "", 0
        began = time.monotonic()
        until = began + seconds
        while self._wait_for_turn(tries, until):
            tries += 1
            asked_at = time.monotonic()
            try:
                status, headers, answer = self._send(path, data, bytes_max, until)
                if status == 200:
                    return self._read(answer, bytes_max)
            except ssl.SSLCertVerificationError as error:
                raise BadData(f"the certificate of {self.host} is not valid: {error.verify_message}") from error
            except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: odd sizes of chunks
                # The last try may have begun when hardly any time was left: what came before it says more.
                is_cut = until <= time.monotonic() < asked_at + TELLING_SECONDS
                if not (failure and is_cut):
                    failure = self.shown(str(error) or type(error).__name__)
                until = until if self._was_reached else min(until, began + REACH_SECONDS_MAX)
                continue
            if status not in _AGAIN and status < 500:
                raise self._refusal(status, headers, answer)
            failure = f"status {status}"
            self._pause(headers.get("Retry-After"))
        spent = time.monotonic() - began
        raise BadData(f"{self.host} gave no answer within {spent:.0f} s (tries: {tries}); the last one: {failure}")

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

    def _send(self, path: str, body: bytes, bytes_max: int, until: float) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and body; of a body that is too long, one byte more than it may have."""
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "souk-evaluate"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        watched = self._connection()
        is_whole = False
        try:
            watched.begin(Limits(self._stop, until=until, bytes_max=2 * bytes_max + FRAMING_BYTES_MAX))
            connection = self._speak_over(watched)
            connection.request("POST", self._parts.path + path, body, headers)
            response = connection.getresponse()
            most = bytes_max if response.status == 200 else ERROR_BYTES_MAX
            data = response.read(most + 1)
            if response.length and len(data) <= most:  # of what was announced, so much is missing
                raise http.client.IncompleteRead(data, response.length)
            is_whole = response.isclosed() and not response.will_close
            return response.status, response.headers, data
        finally:
            self._give_back(watched, is_usable=is_whole)

    def _connection(self) -> WatchedSocket:
        """A connection that an earlier request left, or a new one."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        plain = self._connect()
        self._was_reached = True
        try:
            plain.settimeout(CONNECT_SECONDS)
            return WatchedSocket(self._tls.wrap_socket(plain, server_hostname=self._host) if self._tls else plain)
        except BaseException:
            plain.close()
            raise

    def _connect(self) -> socket.socket:
        """Connect to one of the host's public addresses; a loopback is asked only where it is named as one."""
        found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)  # has timeouts of its own
        is_here = self._host in LOOPBACK_HOSTS
        public = [each for each in found if is_here or is_public_address(str(each[4][0]))][:ADDRESSES_MAX]
        if not public:
            raise BadData(f"{self.host} leads to no address on the internet, and nothing else is asked")
        failure = OSError()
        for family, kind, protocol, _, address in public:
            self._wait(0.0)
            plain = socket.socket(family, kind, protocol)
            try:
                plain.settimeout(CONNECT_SECONDS / len(public))
                plain.connect(address)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return plain
            except OSError as error:
                plain.close()
                failure = error
        raise failure

    def _speak_over(self, watched: WatchedSocket) -> Any:
        """HTTP for one request; a connection that breaks is not opened again, as that one would be unwatched."""
        connection: Any = http.client.HTTPConnection(self._host, self._port)
        if self._tls is not None:  # for its port in the header Host alone
            connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls)
        connection.auto_open = 0
        connection.sock = watched
        return connection

    def _give_back(self, watched: WatchedSocket, *, is_usable: bool) -> None:
        if is_usable:
            with self._lock:
                if len(self._idle) < IDLE_MAX:
                    self._idle.append(watched)
                    return
        watched.end()

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

    def _wait_for_turn(self, tries: int, until: float) -> bool:
        """Wait before the next try; False where the request's time is over."""
        if tries:
            delay = min(DELAY_SECONDS * 2 ** min(tries, DOUBLINGS_MAX), DELAY_SECONDS_MAX)
            self._wait(min(random.uniform(0.5, 1.0) * delay, until - time.monotonic()))
        pause = self._paused_until - time.monotonic()
        if pause > 0:  # all threads wait for the same moment, and are not to ask at it all at once
            pause += random.uniform(0.0, SPREAD_SECONDS)
        self._wait(min(pause, until - time.monotonic()))
        return not tries or time.monotonic() < until

    def _wait(self, seconds: float) -> None:
        if self._stop.wait(max(0.0, seconds)):
            raise Stopped("SIGTERM: this request is not answered")


def is_key(value: str) -> bool:
    """Whether it can be sent in a header, and is unlike ordinary text."""
    is_long = KEY_CHARACTERS_MIN <= len(value) <= KEY_CHARACTERS_MAX
    return is_long and all("!" <= each <= "~" for each in value)


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
