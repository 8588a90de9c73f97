"""What a computer downloads to become a node: the script, the signed manifest, the wheel."""

from __future__ import annotations

import os
import shlex
from functools import cache
from pathlib import Path
from typing import Final

from django.conf import settings
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_safe

from marketplace.foundation import signing
from marketplace.portal.install.manifests import current_release, release_of, wheel_named

SCRIPT: Final = Path(__file__).with_name("install.sh")
BANDWIDTH_BYTES: Final = 4 * 1024 * 1024  # what preflight fetches; it sends at most DATA_UPLOAD_MAX_MEMORY_SIZE
# An Ed25519 public key in DER is these bytes and the key's own 32 (RFC 8410).
ED25519_DER_PREFIX: Final = bytes.fromhex("302a300506032b6570032100")


@require_safe
@never_cache
def install_script(request: HttpRequest) -> HttpResponse:
    """install.sh, knowing this marketplace, its key and its wheel."""
    release = current_release()
    known = {
        "SERVER": settings.SOUK_API_URL,
        "WHEEL": release.name,
        "VERSION": release.version,
        "SHA256": release.sha256,
        "PUBLIC_KEY": signing.server_public_key_hex(),
    }
    text = SCRIPT.read_text()
    for name, value in known.items():
        text = text.replace(f"\n{name}=@{name}@\n", f"\n{name}={shlex.quote(value)}\n")
    text = text.replace("@SERVER@", settings.SOUK_API_URL)  # in the comments
    return HttpResponse(text, content_type="text/x-shellscript; charset=utf-8")


@require_safe
@never_cache
def manifest(request: HttpRequest) -> HttpResponse:
    """The wheel's name, version and SHA-256, and what a node must have."""
    return HttpResponse(current_release().manifest, content_type="application/json")


@require_safe
@never_cache
def manifest_signature(request: HttpRequest) -> HttpResponse:
    """64 bytes, by the marketplace's key."""
    return HttpResponse(current_release().signature, content_type="application/octet-stream")


@require_safe
@never_cache
def release_manifest(request: HttpRequest, version: str) -> HttpResponse:
    """The manifest of one published release; nodes that should update to it fetch it by its version."""
    return HttpResponse(release_of(version).manifest, content_type="application/json")


@require_safe
@never_cache
def release_signature(request: HttpRequest, version: str) -> HttpResponse:
    """64 bytes, by the marketplace's key."""
    return HttpResponse(release_of(version).signature, content_type="application/octet-stream")


@require_safe
def wheel(request: HttpRequest, name: str) -> HttpResponseBase:
    """A wheel that was published, and no other file."""
    path = wheel_named(name)
    if path is None:
        raise Http404
    return FileResponse(path.open("rb"), content_type="application/octet-stream")


@csrf_exempt
@require_http_methods(["GET", "POST"])
@never_cache
def bandwidth(request: HttpRequest) -> HttpResponse:
    """Bytes to measure a connection with: GET sends some that cannot be compressed, POST takes the node's own."""
    if request.method == "POST":
        return JsonResponse({"bytes": len(request.body)})
    return HttpResponse(_noise(), content_type="application/octet-stream")


@cache
def _noise() -> bytes:
    return os.urandom(BANDWIDTH_BYTES)
