"""Whether an image names addresses of its own for its parts, as engines that keep images in containerd would ask.

A manifest may list `urls` for each layer. Such an engine asks them before the registry, whatever they are, so that an
image of a stranger would make this computer ask things of the provider's network. Each manifest that the engine may
choose is read first, as anyone may read it, and compared with its digest: the engine then gets the same bytes or none.

    GET https://registry/v2/NAME/manifests/DIGEST   401 names where anyone gets a token for reading
    https://specs.opencontainers.org/image-spec/    index -> manifest -> layers, each with a digest
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError

from provider_agent.errors import ImageUnavailable
from provider_agent.executors.docker.registries import HUB_HOST, RegistryAnswer
from provider_agent.protocol import registry_of, untagged

MANIFEST_BYTES_MAX: Final = 4 * 1024**2  # what engines take, too
MANIFESTS_MAX: Final = 32  # of one image that this computer might choose
DEPTH_MAX: Final = 2  # an index of indexes is nobody's
SECONDS_MAX: Final = 10.0  # without a byte
READING_SECONDS_MAX: Final = 120.0  # for all manifests of an image
CHUNK_BYTES: Final = 16 * 1024
TOKEN_BYTES_MAX: Final = 64 * 1024
MEDIA_TYPES: Final = ", ".join(
    [
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    ]
)
# Of other kinds of processors, as images name them. What is not listed may be this computer's by another name.
_X86: Final = frozenset({"amd64", "386"})
_ARM: Final = frozenset({"arm64", "arm"})
_OTHERS: Final = frozenset({"s390x", "ppc64le", "riscv64", "mips64", "mips64le", "loong64"})
_SUBJECT: Final = "vnd.docker.reference.digest"  # of which manifest of the index something is said
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_CHALLENGE: Final = re.compile(r'(realm|service|scope)="([^"]{1,1000})"')


def keeps_in_containerd(info: dict[str, Any]) -> bool:
    """Whether an engine with this description asks what manifests name."""
    return any("io.containerd" in str(value) for _, value in info.get("DriverStatus") or [])


def require_no_addresses(
    name: str, digest: str, *, architecture: str, origin: str = "", cancelled: threading.Event | None = None
) -> None:
    """Raise ImageUnavailable for an image that names an address, or that is in no form known here.

    `architecture`: of this computer, as the engine names it. `origin`: the registry's, if not by https at its name.
    RegistryAnswer: the registry gave no such manifest, not in READING_SECONDS_MAX, or not before `cancelled`. Both are
    looked at between pieces of a body; headers have the time that a public registry takes for them.
    """
    registry = registry_of(name)
    host = HUB_HOST if registry == "docker.io" else registry
    with requests.Session() as session:
        base = f"{origin or f'https://{host}'}/v2/{repository_of(name)}"
        reader = _Reader(session, base, cancelled or threading.Event())
        left = MANIFESTS_MAX
        waiting = [(digest, 0)]
        while waiting:
            one, depth = waiting.pop()
            left -= 1
            if left < 0 or depth > DEPTH_MAX:
                raise ImageUnavailable(f"The image {name} has more manifests than this node reads.")
            found = _parse(reader.read(one), name)
            waiting += [(each, depth + 1) for each in _children(found, architecture)]


def repository_of(name: str) -> str:
    """An image's name without registry, tag and digest; those of docker.io without an owner are `library`'s."""
    path = untagged(name)
    first, _, rest = path.partition("/")
    if rest and (registry_of(name) != "docker.io" or "." in first):
        path = rest
    return f"library/{path}" if registry_of(name) == "docker.io" and "/" not in path else path


class _Reader:
    """Reads manifests of one repository as anyone may."""

    def __init__(self, session: requests.Session, base: str, cancelled: threading.Event) -> None:
        self._session, self._base, self._cancelled = session, base, cancelled
        self._until = time.monotonic() + READING_SECONDS_MAX
        self._headers = {"Accept": MEDIA_TYPES, "Accept-Encoding": "identity"}

    def read(self, digest: str) -> bytes:
        """The bytes of this digest."""
        address = f"{self._base}/manifests/{digest}"
        try:
            status, headers, body = self._get(address, self._headers, MANIFEST_BYTES_MAX)
            if status == requests.codes.unauthorized and "Authorization" not in self._headers:
                token = self._sign_in(headers.get("WWW-Authenticate", ""))
                self._headers["Authorization"] = f"Bearer {token}"
                status, _, body = self._get(address, self._headers, MANIFEST_BYTES_MAX)
        except (requests.RequestException, HTTPError, ValueError, KeyError, TypeError) as error:
            raise RegistryAnswer(f"{address}: {error}") from error
        if status != requests.codes.ok:
            raise RegistryAnswer(f"{address} answered {status}")
        if f"sha256:{hashlib.sha256(body).hexdigest()}" != digest:
            raise RegistryAnswer(f"{address} has other bytes than its digest says")
        return body

    def _sign_in(self, challenge: str) -> str:
        said = dict(_CHALLENGE.findall(challenge)) if challenge.lower().startswith("bearer ") else {}
        realm = urlsplit(said["realm"])
        if realm.scheme != urlsplit(self._base).scheme or realm.username or realm.password:
            raise ValueError(f"a token from {said['realm']}")
        asked = {key: said[key] for key in ("service", "scope") if key in said}
        status, _, body = self._get(said["realm"], {"Accept-Encoding": "identity"}, TOKEN_BYTES_MAX, asked)
        if status != requests.codes.ok:
            raise ValueError(f"{said['realm']} answered {status}")
        answer = json.loads(body)
        return str(answer.get("token") or answer["access_token"])

    def _get(
        self, address: str, headers: dict[str, str], bytes_max: int, asked: dict[str, str] | None = None
    ) -> tuple[int, Any, bytes]:
        self._require_time()
        with self._session.get(
            address, params=asked, headers=headers, timeout=SECONDS_MAX, allow_redirects=False, stream=True
        ) as answer:
            body = b""
            # Whatever has come: `iter_content` would wait for a whole chunk, byte by byte if need be. Not decoded.
            while chunk := answer.raw.read1(CHUNK_BYTES):
                body += chunk
                self._require_time()
                if len(body) > bytes_max:
                    raise ValueError(f"more than {bytes_max} bytes")
            return answer.status_code, answer.headers, body

    def _require_time(self) -> None:
        if self._cancelled.is_set():
            raise ValueError("nobody waits for it any more")
        if time.monotonic() > self._until:
            raise ValueError(f"not read to its end within {READING_SECONDS_MAX:g} s")


def _parse(body: bytes, name: str) -> dict[str, Any]:
    """A manifest, its keys folded as engines in Go read them: `URLS` is `urls` to them."""

    def fold(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        folded: dict[str, Any] = {}
        for key, value in pairs:
            if key.casefold() in folded:
                raise ValueError(f"{key} twice")
            folded[key.casefold()] = value
        if folded.get("urls"):
            raise ImageUnavailable(f"The image {name} names addresses of its own for its parts.")
        return folded

    try:
        found = json.loads(body, object_pairs_hook=fold)
    except (ValueError, RecursionError) as error:
        raise RegistryAnswer(f"a manifest of {name} is not read as engines read it: {error}") from error
    if not isinstance(found, dict):
        raise RegistryAnswer(f"a manifest of {name} is no object")
    return found


def _children(manifest: dict[str, Any], architecture: str) -> list[str]:
    """The digests that an index lists, but those of other processors, and what is said of these."""
    others = _OTHERS | (_X86 if architecture in {"aarch64", "arm64"} else _ARM)
    listed = manifest.get("manifests") or []
    entries = [each if isinstance(each, dict) else {} for each in (listed if isinstance(listed, list) else [None])]
    if not all(_DIGEST.fullmatch(str(each.get("digest"))) for each in entries):
        raise RegistryAnswer("an index lists something without a digest")
    # What is listed twice, once for this processor, is this one's.
    possible = {each["digest"] for each in entries if _architecture(each) not in others}
    return list(
        dict.fromkeys(
            each["digest"]
            for each in entries
            if each["digest"] in possible
            and not (_architecture(each) == "unknown" and _is_about_others(each, possible))
        )
    )


def _architecture(entry: dict[str, Any]) -> str:
    return str(_part(entry, "platform").get("architecture"))


def _is_about_others(entry: dict[str, Any], possible: set[str]) -> bool:
    subject = _part(entry, "annotations").get(_SUBJECT)
    return subject is not None and str(subject) not in possible


def _part(entry: dict[str, Any], name: str) -> dict[str, Any]:
    part = entry.get(name)
    return part if isinstance(part, dict) else {}
