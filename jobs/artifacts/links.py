"""Addresses of the local store that carry their own right: what may be done, until when, under our signature."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from django.conf import settings

from jobs.artifacts.store import is_key
from jobs.errors import LinkRefused
from marketplace.foundation import clock


@dataclass(frozen=True)
class Link:
    """One right: PUT part `number` of `count`, of `size` bytes; or GET, where these are 0."""

    method: str
    key: str
    until: datetime
    number: int = 0
    count: int = 0
    size: int = 0


def link_secret() -> bytes:
    """What addresses are signed with; it derives from the server's secret."""
    return hashlib.sha256(b"souk-artifact-links-v1" + settings.SOUK_SECRET_KEY.encode()).digest()


def url_for_link(base_url: str, link: Link, secret: bytes) -> str:
    """The address; nothing in it can be changed without the secret."""
    fields = {"part": link.number, "of": link.count, "size": link.size, "until": int(link.until.timestamp())}
    return f"{base_url}/artifacts/{link.key}?{urlencode({**fields, 'signature': _sign(link, secret)})}"


def open_link(method: str, key: str, query: Mapping[str, str], secret: bytes) -> Link:
    """The right that an address carries; raises LinkRefused for a forged or expired one."""
    try:
        until = datetime.fromtimestamp(int(query["until"]), UTC)
        number, count, size = (int(query[name]) for name in ("part", "of", "size"))
        signature = query["signature"]
    except (KeyError, ValueError, OverflowError, OSError) as error:
        raise LinkRefused() from error
    link = Link(method, key, until, number, count, size)
    is_ours = is_key(key) and hmac.compare_digest(signature.encode(), _sign(link, secret).encode())
    if not is_ours or until <= clock.now():
        raise LinkRefused()
    return link


def _sign(link: Link, secret: bytes) -> str:
    fields = (link.method, link.key, link.number, link.count, link.size, int(link.until.timestamp()))
    return hmac.new(secret, "\n".join(map(str, fields)).encode(), hashlib.sha256).hexdigest()
