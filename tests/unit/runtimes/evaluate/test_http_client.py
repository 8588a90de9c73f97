"""Requests to an endpoint: what is tried again, what is bounded, when they are left, and where the key never stands."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from runtimes.evaluate import http_client, watched_socket
from runtimes.evaluate.http_client import Client, Refused
from runtimes.train.errors import BadData, Stopped
from tests.fakes.openai_server import (
    Fault,
    Service,
    breaks_off,
    chunks,
    fails,
    hangs_up,
    sends,
    serving,
    trickles,
)

KEY = "sk-0123456789abcdef"
BODY = {"model": "theirs", "prompt": "One two", "max_tokens": 2}
BYTES_MAX = 10_000


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(http_client, "DELAY_SECONDS", 0.001)
    with serving(key=KEY) as found:
        yield found


def client(service: Service, *, key: str | None = KEY, stop: threading.Event | None = None) -> Client:
    return Client(service.address, key=key, stop=stop or threading.Event())


def test_an_answer_comes_with_the_key_and_on_one_connection(service: Service) -> None:
    asking = client(service)
    first = asking.post("/completions", BODY, bytes_max=BYTES_MAX)
    (kept,) = asking._idle
    assert asking.post("/completions", BODY, bytes_max=BYTES_MAX) == first
    assert asking._idle == [kept]
    assert [each["authorization"] for each in service.asked] == [f"Bearer {KEY}"] * 2


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 529])
def test_a_request_is_tried_again_where_that_may_help(service: Service, status: int) -> None:
    service.faults.extend([fails(status), fails(status)])
    assert client(service).post("/completions", BODY, bytes_max=BYTES_MAX)["choices"]
    assert len(service.asked) == 3


@pytest.mark.parametrize("fault", [breaks_off, sends(b"<html>"), sends(b'{"choices": ')])
def test_half_an_answer_and_what_is_no_json_is_asked_again(service: Service, fault: Fault) -> None:
    service.faults.append(fault)
    assert client(service).post("/completions", BODY, bytes_max=BYTES_MAX)["choices"]
    assert len(service.asked) == 2


@pytest.mark.parametrize(
    ("version", "has_length"), [("HTTP/1.1", False), ("HTTP/1.1", True), ("HTTP/1.0", False), ("HTTP/1.0", True)]
)
def test_an_answer_after_which_the_connection_ends_is_whole(service: Service, version: str, has_length: bool) -> None:
    body = {"choices": [{"text": "x" * 20_000}]}
    service.faults.append(hangs_up(body, version=version, has_length=has_length))
    asking = client(service)
    assert asking.post("/completions", BODY, bytes_max=100_000) == body
    assert (asking._idle, len(service.asked)) == ([], 1)
    assert asking.post("/completions", BODY, bytes_max=100_000)["choices"]
    assert (len(asking._idle), len(service.asked)) == (1, 2)


@pytest.mark.parametrize("size", [b"-1", b"-5", b"many", b""])
def test_an_answer_with_a_chunk_of_an_odd_size_is_asked_for_again(service: Service, size: bytes) -> None:
    service.faults.append(chunks(size, b" " * 3_000_000))
    assert client(service).post("/completions", BODY, bytes_max=BYTES_MAX)["choices"]
    assert len(service.asked) == 2


def test_a_chunk_without_an_end_is_not_read_to_its_end(service: Service) -> None:
    """http.client takes the size -1, and reads as much as comes."""
    service.faults.extend([chunks(b"-1", b" " * 3_000_000)] * 1000)
    most = 2 * BYTES_MAX + http_client.FRAMING_BYTES_MAX
    with pytest.raises(BadData, match=rf"the last one: more than {most} bytes came"):
        client(service).post("/completions", BODY, bytes_max=BYTES_MAX, seconds=2.0)


def test_an_endpoint_that_fails_most_of_the_time_still_answers(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "DELAY_SECONDS_MAX", 0.001)
    service.faults.extend([fails(503)] * 20)
    assert client(service).post("/completions", BODY, bytes_max=BYTES_MAX)["choices"]
    assert len(service.asked) == 21


@pytest.mark.parametrize(("fault", "last"), [(fails(503), "status 503"), (trickles, "no whole answer in")])
def test_a_request_has_one_time_for_all_its_tries(
    service: Service, monkeypatch: pytest.MonkeyPatch, fault: Fault, last: str
) -> None:
    monkeypatch.setattr(http_client, "DELAY_SECONDS_MAX", 0.1)
    service.faults.extend([fault] * 1000)
    with pytest.raises(BadData, match=rf"no answer within \d+ s \(tries: \d+\); the last one: {last}"):
        client(service).post("/completions", BODY, bytes_max=BYTES_MAX, seconds=1.0)


@pytest.mark.parametrize(("seconds", "last"), [(0.5, "status 503"), (1.8, "no whole answer in")])
def test_a_last_try_without_time_hides_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch, seconds: float, last: str
) -> None:
    monkeypatch.setattr(http_client, "DELAY_SECONDS_MAX", 0.01)
    service.faults.extend([fails(503), trickles])
    with pytest.raises(BadData, match=rf"\(tries: 2\); the last one: {last}"):
        client(service).post("/completions", BODY, bytes_max=BYTES_MAX, seconds=seconds)


def test_nobody_there_is_named_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "DELAY_SECONDS", 0.001)
    monkeypatch.setattr(http_client, "REACH_SECONDS_MAX", 0.2)
    with serving() as gone:
        pass
    with pytest.raises(BadData, match="gave no answer within"):
        client(gone).post("/completions", BODY, bytes_max=BYTES_MAX)


@pytest.fixture
def dead_port() -> Iterator[int]:
    """Of 127.0.0.1, where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def lead_to(monkeypatch: pytest.MonkeyPatch, *ports: int) -> list[tuple[str, int]]:
    """Every name leads to these ports of 127.0.0.1; what was looked up."""
    looked_up: list[tuple[str, int]] = []

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        looked_up.append((host, port))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", each)) for each in ports]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return looked_up


def test_a_few_addresses_of_a_host_are_tried(service: Service, dead_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "REACH_SECONDS_MAX", 0.0)
    port = urlsplit(service.address).port or 0
    lead_to(monkeypatch, dead_port, dead_port, dead_port, port)
    assert client(service).post("/completions", BODY, bytes_max=BYTES_MAX)["choices"]
    lead_to(monkeypatch, *[dead_port] * http_client.ADDRESSES_MAX, port)
    with pytest.raises(BadData, match="gave no answer within"):
        client(service).post("/completions", BODY, bytes_max=BYTES_MAX)
    assert len(service.asked) == 1


def test_no_address_is_tried_after_sigterm(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    lead_to(monkeypatch, urlsplit(service.address).port or 0)
    resolve = socket.getaddrinfo

    def stop_meanwhile(*where: Any, **how: Any) -> Any:
        stop.set()
        return resolve(*where, **how)

    monkeypatch.setattr(socket, "getaddrinfo", stop_meanwhile)
    asking = client(service, stop=stop)
    with pytest.raises(Stopped):
        asking.post("/completions", BODY, bytes_max=BYTES_MAX)
    assert (service.asked, asking._was_reached) == ([], False)


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"])
def test_a_name_that_leads_into_the_nodes_network_is_not_asked(service: Service, host: str) -> None:
    address = service.address.replace("127.0.0.1", host)
    asking = Client(address, key=KEY, stop=threading.Event())
    with pytest.raises(BadData, match="leads to no address on the internet"):
        asking.post("/completions", BODY, bytes_max=BYTES_MAX)
    assert (service.asked, asking._was_reached) == ([], False)


def test_an_ipv6_address_needs_no_port(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = lead_to(monkeypatch, urlsplit(service.address).port or 0)
    asking = Client("http://[::1]/v1", key=KEY, stop=threading.Event())
    assert asking.post("/completions", BODY, bytes_max=BYTES_MAX)["choices"]
    assert looked_up == [("::1", 80)]
    assert Client("https://[::1]/v1", key=KEY, stop=threading.Event())._port == 443


def test_every_thread_waits_as_long_as_the_endpoint_wants(service: Service) -> None:
    service.faults.append(fails(429, Retry_After="1"))
    asking = client(service)
    threads = [
        threading.Thread(target=lambda: asking.post("/completions", BODY, bytes_max=BYTES_MAX)) for _ in range(2)
    ]
    began = time.monotonic()
    threads[0].start()
    while not asking._paused_until and time.monotonic() < began + 5:
        time.sleep(0.01)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert time.monotonic() >= asking._paused_until > began + 0.9
    assert len(service.asked) == 3


def test_threads_do_not_ask_all_at_once_after_such_a_wait(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    asking, waited = client(service), list[float]()
    monkeypatch.setattr(asking, "_wait", waited.append)
    asking._pause("30")
    for _ in range(50):
        assert asking._wait_for_turn(0, time.monotonic() + 900)
    assert min(waited) > 20 and max(waited) - min(waited) > http_client.SPREAD_SECONDS / 4
    asking._wait_for_turn(0, time.monotonic() + 1)
    assert waited[-1] <= 1


@pytest.mark.parametrize("text", ["soon", "-5", "1e9", "", "Wed, 99 Foo"])
def test_a_retry_after_that_says_nothing_is_no_pause(text: str) -> None:
    assert http_client._seconds(text) <= 0


def test_a_retry_after_may_be_a_moment_and_is_bounded(service: Service) -> None:
    moment = format_datetime(datetime.now(UTC) + timedelta(days=400), usegmt=True)
    assert http_client._seconds(moment) > 300 * 86_400
    asking = client(service)
    asking._pause(moment)
    asking._pause("9" * 400)
    assert asking._paused_until <= time.monotonic() + http_client.RETRY_AFTER_SECONDS_MAX


def test_a_refusal_is_not_tried_again_and_its_reason_is_shown(service: Service) -> None:
    service.faults.append(fails(400, f"too long\n\x1b[31m for {KEY} " + "x" * 1000))
    with pytest.raises(Refused) as refused:
        client(service).post("/completions", BODY, bytes_max=BYTES_MAX)
    text = str(refused.value)
    assert "too long [31m for [key] xxx" in text and len(text) < 300
    assert KEY not in text and "\x1b" not in text
    assert len(service.asked) == 1


def test_a_key_that_is_not_taken_stands_in_no_message(service: Service) -> None:
    with pytest.raises(BadData, match=r"refuses the key \(status 401\)$"):
        client(service, key="sk-another-one").post("/completions", BODY, bytes_max=BYTES_MAX)
    with pytest.raises(BadData, match=r"wants a key \(status 401\)$"):
        client(service, key=None).post("/completions", BODY, bytes_max=BYTES_MAX)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed_and_the_key_stays(service: Service, status: int) -> None:
    with serving() as other:
        service.faults.append(fails(status, Location=f"{other.address}/completions?was={KEY}"))
        with pytest.raises(BadData, match=r"redirects to http://127\.0\.0\.1") as refused:
            client(service).post("/completions", BODY, bytes_max=BYTES_MAX)
        assert other.asked == []
    assert KEY not in str(refused.value)


def test_an_answer_that_is_too_long_or_no_object_is_refused(service: Service) -> None:
    service.faults.extend([sends(b" " * 20_000), sends([1])])
    with pytest.raises(Refused, match="more than 10000 bytes"):
        client(service).post("/completions", BODY, bytes_max=BYTES_MAX)
    with pytest.raises(Refused, match="no object"):
        client(service).post("/completions", BODY, bytes_max=BYTES_MAX)


def test_a_trickle_of_bytes_does_not_lengthen_a_request(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_socket, "REQUEST_SECONDS_MAX", 2.0)
    service.faults.append(trickles)
    assert client(service).post("/completions", BODY, bytes_max=BYTES_MAX)["choices"]
    assert len(service.asked) >= 2, "it was left and asked again"


def test_a_running_request_is_left_a_while_after_sigterm(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_socket, "LEAVE_SECONDS", 0.3)
    stop = threading.Event()
    service.faults.append(trickles)
    threading.Timer(0.3, stop.set).start()
    with pytest.raises(Stopped):
        client(service, stop=stop).post("/completions", BODY, bytes_max=BYTES_MAX)


def test_an_answer_that_comes_soon_after_sigterm_is_taken(service: Service) -> None:
    stop = threading.Event()
    service.seconds = 0.6
    threading.Timer(0.2, stop.set).start()
    asking = client(service, stop=stop)
    assert asking.post("/completions", BODY, bytes_max=BYTES_MAX)["choices"]
    with pytest.raises(Stopped):
        asking.post("/completions", BODY, bytes_max=BYTES_MAX)
    assert len(service.asked) == 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 by itself, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


def test_an_endpoint_behind_tls_is_asked_only_with_a_valid_certificate(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with serving(key=KEY, tls=tls) as service:
        with pytest.raises(BadData, match=r"the certificate of 127\.0\.0\.1:\d+ is not valid: self-signed"):
            client(service).post("/completions", BODY, bytes_max=BYTES_MAX)
        assert service.asked == []
        trusting = ssl.create_default_context(cafile=certificate)
        monkeypatch.setattr(http_client, "_make_tls", lambda: trusting)
        service.seconds = 0.7  # longer than one look at the limits
        body = BODY | {"prompt": "One two " * 100_000}
        assert client(service).post("/completions", body, bytes_max=BYTES_MAX)["choices"]
        assert service.asked[0]["prompt"] == body["prompt"]


@pytest.mark.parametrize("key", ["short", "with a blank in it", "new\nline: injected", "schlüssel-123", "x" * 5000, ""])
def test_what_cannot_be_a_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(BadData) as refused:
        Client("http://127.0.0.1:1/v1", key=key, stop=threading.Event())
    assert not key or key not in str(refused.value)
