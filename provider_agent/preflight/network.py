"""The way to the marketplace: reachable, with the same time, and fast enough."""

from __future__ import annotations

import http.client
import os
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from provider_agent.preflight.finding import Finding

CONNECT_SECONDS_MAX = 8.0
BANDWIDTH_SECONDS_MAX = 30.0
UPLOAD_BYTES = 1024 * 1024
CHUNK_BYTES = 64 * 1024
CLOCK_SECONDS_MAX = 30
MBIT_MIN = 10.0
PROXIES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


def check_network(server: str, sync_server: str = "") -> list[Finding]:
    """Reachability of both addresses, the clock, the bandwidth both ways; the rest is skipped where nothing answers."""
    date, findings = "", []
    for check, url in (("server (api)", server), ("server (sync)", sync_server)):
        if not url:
            continue
        try:
            with _open(f"{url.rstrip('/')}/healthz", CONNECT_SECONDS_MAX) as answer:
                date = answer.headers.get("Date") or date
                findings.append(Finding("PASS", check, f"{url} answers{_by_proxy(url)}"))
        except (OSError, ValueError) as error:
            findings.append(Finding("FIX", check, f"{url} does not answer{_by_proxy(url)}: {error}", _fix_for(url)))
    findings.append(check_clock(date))
    if findings[0].verdict != "PASS":
        return [*findings, Finding("SKIP", "bandwidth", "the marketplace does not answer")]
    return [*findings, check_bandwidth(server)]


def check_clock(date: str) -> Finding:
    """Signed requests are refused where the clocks differ much."""
    if not date:
        return Finding("SKIP", "clock", "the server sent no time")
    seconds = abs((datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds())
    if seconds > CLOCK_SECONDS_MAX:
        return Finding("FIX", "clock", f"{seconds:.0f} s from the server's", "timedatectl set-ntp true")
    return Finding("PASS", "clock", f"within {max(seconds, 1):.0f} s of the server's")


def check_bandwidth(server: str) -> Finding:
    """Inputs and checkpoints travel between the node and the marketplace."""
    url = f"{server.rstrip('/')}/dist/bandwidth"
    try:
        down, up = _mbit(lambda: _fetch(url)), _mbit(lambda: _send(url))
    except (OSError, ValueError) as error:
        return Finding("SKIP", "bandwidth", f"could not be measured: {error}")
    found = f"{down:.0f} Mbit/s down, {up:.0f} Mbit/s up"
    if min(down, up) < MBIT_MIN:
        fix = "use a cable in place of wireless, or a faster line; the node would be slow to begin and to save"
        return Finding("FIX", "bandwidth", f"{found}; {MBIT_MIN:.0f} are needed", fix)
    return Finding("PASS", "bandwidth", found)


def _mbit(transfer: Callable[[], int]) -> float:
    started = time.monotonic()
    count = transfer()
    return count * 8 / 1e6 / max(time.monotonic() - started, 1e-6)


def _fetch(url: str) -> int:
    """Bytes that came until the end, or until time was up."""
    until, count = time.monotonic() + BANDWIDTH_SECONDS_MAX, 0
    with _open(url, CONNECT_SECONDS_MAX) as answer:
        while chunk := answer.read(CHUNK_BYTES):
            count += len(chunk)
            if time.monotonic() > until:
                break
    return count


def _send(url: str) -> int:
    with _open(url, BANDWIDTH_SECONDS_MAX, os.urandom(UPLOAD_BYTES)):
        return UPLOAD_BYTES


def _open(url: str, seconds: float, data: bytes | None = None) -> http.client.HTTPResponse:
    """As urlopen, which goes through the environment's proxy."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url} is not an http(s) address")
    request = urllib.request.Request(url, data, {"Content-Type": "application/octet-stream"} if data else {})  # noqa: S310
    answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=seconds)  # noqa: S310 - http(s), see above
    return answer


def _by_proxy(url: str) -> str:
    proxy = urllib.request.getproxies().get(url.split(":", 1)[0], "")
    if not proxy or urllib.request.proxy_bypass(url.split("/")[2].rsplit(":", 1)[0]):
        return ""
    return f" (through the proxy {proxy.rsplit('@', 1)[-1]})"


def _fix_for(url: str) -> str:
    if any(os.environ.get(name) for name in PROXIES):
        return f"curl -v {url}/healthz; is the proxy right? it comes from HTTPS_PROXY, HTTP_PROXY and NO_PROXY"
    return f"curl -v {url}/healthz; behind a proxy, set HTTPS_PROXY first"
