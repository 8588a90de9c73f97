"""The local store over HTTP: PUT a part, GET a file or a range of it. The address is the only credential."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import BinaryIO

from django.conf import settings
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from jobs.artifacts import fallback, parts
from jobs.artifacts.choice import get_store
from jobs.artifacts.links import link_secret, open_link
from jobs.artifacts.local import LocalStore
from jobs.errors import ArtifactNotFound, UploadRefused

CHUNK_BYTES = 256 * 1024
_RANGE = re.compile(r"bytes=(\d{1,15})?-(\d{1,15})?")


@csrf_exempt
def serve(request: HttpRequest, key: str) -> HttpResponseBase:
    """PUT, GET and HEAD of one key."""
    store = get_store()
    if not isinstance(store, LocalStore) and not settings.SOUK_ARTIFACT_SECOND_FOLDER:
        raise ArtifactNotFound()
    if request.method == "PUT" and isinstance(store, LocalStore):
        return _put(request, key, store)
    if request.method in {"GET", "HEAD"}:
        return _get(request, key)
    return HttpResponseNotAllowed(["GET", "HEAD", "PUT"])


def _put(request: HttpRequest, key: str, store: LocalStore) -> HttpResponse:
    link = open_link("PUT", key, request.GET.dict(), store.secret)
    length = request.headers.get("Content-Length", "")
    if length != str(link.size):
        raise UploadRefused(expected=link.size, given=length or "an unknown number of")
    parts.require_uploading(key)
    etag = store.put_part(link, _chunks_of_body(request, link.size))
    parts.delete_late(key)
    return HttpResponse(status=200, headers={"ETag": f'"{etag}"'})


def _get(request: HttpRequest, key: str) -> HttpResponseBase:
    open_link("GET", key, request.GET.dict(), link_secret())
    source = fallback.open_local(key)
    if source is None:
        raise ArtifactNotFound()
    size = os.fstat(source.fileno()).st_size
    wanted = _range_of(request.headers.get("Range", ""), size)
    # Customers' bytes come from the portal's own address: no browser may ever take them for a page.
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Disposition": "attachment",
        "Content-Security-Policy": "sandbox",
        "Cache-Control": "private, no-store",
    }
    if wanted is None:
        source.close()
        return HttpResponse(status=416, headers={**headers, "Content-Range": f"bytes */{size}"})
    first, last, is_partial = wanted
    headers["Content-Length"] = str(last - first + 1)
    if is_partial:
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    status = 206 if is_partial else 200
    if request.method == "HEAD":
        source.close()
        return HttpResponse(status=status, headers=headers, content_type="application/octet-stream")
    part = _PartOfFile(source, first, last - first + 1)
    return FileResponse(part, status=status, headers=headers, content_type="application/octet-stream")


def _range_of(header: str, size: int) -> tuple[int, int, bool] | None:
    """first, last, whether it is a part of the file; None for a range outside of it. Any other header is ignored."""
    match = _RANGE.fullmatch(header.strip())
    if match is None or match.groups() == (None, None):
        return 0, size - 1, False
    start, end = match.groups()
    if start is None:
        first, last = max(0, size - int(end)), size - 1
    else:
        first, last = int(start), min(int(end) if end else size - 1, size - 1)
    return (first, last, True) if first <= last else None


def _chunks_of_body(request: HttpRequest, size: int) -> Iterator[bytes]:
    left = size
    while left > 0 and (chunk := request.read(min(CHUNK_BYTES, left))):
        left -= len(chunk)
        yield chunk


class _PartOfFile:
    """Reads so many bytes of a file from an offset: whoever sends it needs a thread for the reading only."""

    def __init__(self, source: BinaryIO, offset: int, size: int) -> None:
        self._source, self._left = source, size
        source.seek(offset)

    def read(self, size: int = -1) -> bytes:
        """The next bytes; none at the end of the part."""
        piece = self._source.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(piece)
        return piece

    def close(self) -> None:
        """Close the file."""
        self._source.close()
