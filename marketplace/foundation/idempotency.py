"""A request that creates something may be sent twice and has one effect: the header Idempotency-Key.

    1. take      one row per (actor, key), in a transaction of its own; one of two racers gets it
    2. act       the view runs in one transaction, which also stores its answer: effect and answer, or neither
    3. replay    every other request gets the stored answer, or 409 while there is none yet

A server that dies in step 2 leaves no effect and a row that is taken over after STALE_SECONDS. A dead one that turns
out to be alive then fails in storing its answer, and its effect is rolled back with it.

An answer may hold a secret, so it is replayed only to a caller with every scope that the first one had.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar, overload

from django.db import transaction
from django.utils.crypto import salted_hmac
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from marketplace.foundation import clock, signing
from marketplace.foundation.actors import actor_of
from marketplace.foundation.errors import (
    IdempotencyInProgress,
    IdempotencyKeyNotYours,
    IdempotencyKeyRefused,
    IdempotencyMismatch,
)
from marketplace.foundation.models import IdempotencyKey

HEADER: Final = "Idempotency-Key"
HEADER_REPLAYED: Final = "Idempotency-Replayed"
DESCRIPTION: Final = "Up to 200 printable characters, new for each new request; a repeat gets the first answer again."
KEY_CHARACTERS_MAX: Final = 200
WAIT_SECONDS: Final = 5.0  # how long the second of two racers waits for the first one's answer
POLL_SECONDS: Final = 0.05
STALE_SECONDS: Final = 120  # longer than any worker may take over one request
KEEP_DAYS: Final = 90

_State = IdempotencyKey.State


F = TypeVar("F", bound=Callable[..., Response])


@overload
def idempotent(method: F, /) -> F: ...
@overload
def idempotent(*, required: bool = False) -> Callable[[F], F]: ...
def idempotent(method: F | None = None, /, *, required: bool = False) -> F | Callable[[F], F]:
    """Make a view method safe to repeat under one Idempotency-Key; without the header it runs as it is.

    The method runs inside one transaction, so it must not wait for the network; what should happen after the commit
    goes through `on_commit`. Answers below 500 are stored, refusals too; after any other the key is free again.
    With `required`, a request without the header is refused.
    """
    if method is None:
        return functools.partial(_wrap, required=required)
    return _wrap(method, required=required)


def forget_old_keys() -> int:
    """Delete the answers that are older than KEEP_DAYS; returns their number."""
    deleted, _ = IdempotencyKey.objects.filter(created_at__lt=clock.now() - timedelta(days=KEEP_DAYS)).delete()
    return deleted


def _wrap(method: F, *, required: bool) -> F:
    @functools.wraps(method)
    def wrapped(view: APIView, request: Request, *args: Any, **kwargs: Any) -> Response:
        key = request.headers.get(HEADER, "")
        if not key and not required:
            return method(view, request, *args, **kwargs)
        if not 0 < len(key) <= KEY_CHARACTERS_MAX or not key.isascii() or not key.isprintable():
            raise IdempotencyKeyRefused
        row, is_mine = _take(request, key)
        if not is_mine:
            return _replay(row)
        return _act(row, view, functools.partial(method, view, request, *args, **kwargs))

    in_schema = OpenApiParameter(HEADER, location=OpenApiParameter.HEADER, required=required, description=DESCRIPTION)
    return extend_schema(parameters=[in_schema])(wrapped)  # type: ignore[return-value]


def _take(request: Request, key: str) -> tuple[IdempotencyKey, bool]:
    """The row of the key, and whether this request has to do the work."""
    actor, request_hash = actor_of(request), _hash(request)
    scopes = sorted(getattr(request, "scopes", ()))
    fields = {"route": request.path[:200], "request_hash": request_hash, "scopes": scopes, "started_at": clock.now()}
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        row, is_mine = IdempotencyKey.objects.get_or_create(actor=actor, key=key, defaults=fields)
        if row.request_hash != request_hash:
            raise IdempotencyMismatch
        if row.scopes is None or not set(row.scopes) <= set(scopes):
            raise IdempotencyKeyNotYours
        if is_mine or row.state == _State.DONE:
            return row, is_mine
        if _take_over(row):
            return row, True
        if time.monotonic() > deadline:
            raise IdempotencyInProgress
        time.sleep(POLL_SECONDS)


def _take_over(row: IdempotencyKey) -> bool:
    """Whether the row's owner is presumed to have ended and this request has taken its place."""
    now = clock.now()
    if row.started_at > now - timedelta(seconds=STALE_SECONDS):
        return False
    same = IdempotencyKey.objects.filter(pk=row.pk, state=_State.IN_PROGRESS, started_at=row.started_at)
    row.started_at, is_taken = now, same.update(started_at=now) == 1
    return is_taken


def _act(row: IdempotencyKey, view: APIView, method: Callable[[], Response]) -> Response:
    """Run the view; when this returns or raises, the row holds its answer or is deleted."""
    try:
        try:
            with transaction.atomic():
                response = method()
                if response.status_code < 500:
                    _store(row, response)
                else:
                    transaction.set_rollback(True)
        except Exception as error:
            response = view.handle_exception(error)
            if response.status_code < 500 and not isinstance(error, IdempotencyInProgress):
                _store(row, response)
    except BaseException:
        _release(row)
        raise
    if response.status_code >= 500:
        _release(row)
    return response


def _store(row: IdempotencyKey, response: Response) -> None:
    """Write the answer if the row is still this request's; the effect must not outlive a lost row."""
    rendered = JSONRenderer().render(response.data).decode()
    stored = _mine(row).update(
        state=_State.DONE, status_code=response.status_code, response_sealed=signing.encrypt_secret(rendered)
    )
    if stored != 1:
        raise IdempotencyInProgress


def _release(row: IdempotencyKey) -> None:
    _mine(row).delete()


def _mine(row: IdempotencyKey) -> Any:
    return IdempotencyKey.objects.filter(pk=row.pk, state=_State.IN_PROGRESS, started_at=row.started_at)


def _replay(row: IdempotencyKey) -> Response:
    text = signing.decrypt_secret(row.response_sealed)
    return Response(json.loads(text) if text else None, status=row.status_code, headers={HEADER_REPLAYED: "true"})


def _hash(request: Request) -> str:
    """Keyed, because a body may hold a password, which a plain hash would give away to a dictionary."""
    body = json.dumps(request.data, sort_keys=True, separators=(",", ":"), default=str)
    text = f"{request.method}\n{request.get_full_path()}\n{body}"
    return salted_hmac("souk.idempotency", text, algorithm="sha256").hexdigest()
