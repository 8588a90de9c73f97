"""Whose address a request counts under: the connection's own, unless trusted proxies vouch for another one.

SOUK_TRUSTED_PROXIES says which proxies stand in front:

    (empty)                     none: X-Forwarded-For is what a stranger wrote, and is not read; where a proxy stands
                                in front after all, untrusted_proxies.py warns
    2                           that many, one behind the other: the client is who the outermost of them saw
    10.0.0.0/8, 192.0.2.7       these networks and addresses: the client is the last address that is none of them

Each proxy appends who it saw to the header, so the header is read from its end, and what lies further left than the
trusted proxies reach is never read. Where the header does not hold what the setting promises, the request counts
under the last address that is vouched for.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest

from marketplace.foundation.addresses import untrusted_proxies
from marketplace.foundation.addresses.forwarded import (
    FORWARDED_HEADER,
    TrustedProxies,
    address_behind,
    parse_trusted_proxies,
)

UNKNOWN: Final = "unknown"  # of a connection without an address: a Unix socket's


@lru_cache(maxsize=16)
def read_trusted_proxies(text: str) -> TrustedProxies:
    """The setting's meaning; raises ImproperlyConfigured where it has none."""
    try:
        return parse_trusted_proxies(text)
    except ValueError as error:
        raise ImproperlyConfigured(f"SOUK_TRUSTED_PROXIES is {error}") from error


def client_address(request: HttpRequest) -> str:
    """The address of who sent the request, as far as we or our proxies saw it; UNKNOWN where nobody did."""
    trusted = read_trusted_proxies(settings.SOUK_TRUSTED_PROXIES)
    if trusted == TrustedProxies():
        untrusted_proxies.note(request)
    header = request.headers.get(FORWARDED_HEADER, "")
    return address_behind(request.META.get("REMOTE_ADDR", ""), header, trusted) or UNKNOWN


def is_forwarded(request: HttpRequest) -> bool:
    """Whether some proxy says that it passed the request on, trusted or not."""
    return FORWARDED_HEADER in request.headers
