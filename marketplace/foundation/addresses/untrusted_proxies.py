"""Notices that a proxy stands in front while none is trusted: then all visitors count as one, and share its limits.

note    a request came through one: says so in the log, once in NOTE_SECONDS a process, and remembers it for the check
noted   what `manage.py check` shows; empty where nothing was noticed, or Redis, which remembers it, is away

A header alone is what a stranger wrote. It counts where the connection comes from a private address or a Unix socket,
from where proxies do and strangers do not.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
import time
from typing import Final

from django.core.cache import cache
from django.http import HttpRequest
from redis.exceptions import RedisError

HEADERS: Final = ("X-Forwarded-For", "Forwarded", "X-Real-IP")
NOTE_SECONDS: Final = 3600.0
KEPT_SECONDS: Final = 7 * 86_400
CACHE_KEY: Final = "souk-untrusted-proxy"

# From where proxies connect, and strangers of the internet do not.
NEAR: Final = tuple(
    ipaddress.ip_network(each)
    for each in ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "::1", "fc00::/7")
)

logger = logging.getLogger(__name__)


class _Pause:
    """One warning in NOTE_SECONDS a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0

    def begin(self) -> bool:
        """Whether it was over; it begins anew."""
        with self._lock:
            if time.monotonic() < self._until:
                return False
            self._until = time.monotonic() + NOTE_SECONDS
            return True

    def end(self) -> None:
        """The next warning is due at once."""
        with self._lock:
            self._until = 0.0


_pause = _Pause()


def note(request: HttpRequest) -> None:
    """The request is from a proxy that SOUK_TRUSTED_PROXIES does not name, if it is: warn the operator."""
    if not any(name in request.headers for name in HEADERS) or not _is_near(request.META.get("REMOTE_ADDR", "")):
        return
    if not _pause.begin():
        return
    proxy = request.META.get("REMOTE_ADDR") or "a Unix socket"
    logger.warning(
        "A proxy at %s passes requests on and SOUK_TRUSTED_PROXIES is empty: all visitors count as one address, and"
        " share its limits of sign-ins and requests. Set SOUK_TRUSTED_PROXIES to the number of proxies, or to their"
        " networks.",
        proxy,
    )
    try:
        cache.set(CACHE_KEY, proxy, KEPT_SECONDS)
    except (RedisError, OSError):
        logger.info("Redis did not take a note; `manage.py check` will not show it.")


def noted() -> str:
    """From where a proxy passed requests on in the last days while none was trusted."""
    try:
        return str(cache.get(CACHE_KEY) or "")
    except (RedisError, OSError):
        return ""


def forget() -> None:
    """As if nothing had been noticed: the next request from a proxy is."""
    _pause.end()
    cache.delete(CACHE_KEY)


def _is_near(remote: str) -> bool:
    if not remote:
        return True
    try:
        address = ipaddress.ip_address(remote)
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in NEAR)
