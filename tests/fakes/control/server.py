"""The book over HTTP. What a test reads and sets is below /fake/."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from jobs.gateway.messages import KEYS_PATH, SYNC_BODY_BYTES_MAX, SYNC_PATH, GatewaySync, KeyGrant, KeyQuestion, Table
from tests.fakes.control.book import Book


def application(book: Book, token: str) -> web.Application:
    """An aiohttp application; `token` is what gateways must bear."""

    async def sync(request: web.Request) -> web.Response:
        _check(request)
        return _json(book.sync(GatewaySync.model_validate_json(await request.read())).model_dump_json())

    async def keys(request: web.Request) -> web.Response:
        _check(request)
        return _json(book.keys(KeyQuestion.model_validate_json(await request.read())).model_dump_json())

    def _check(request: web.Request) -> None:
        if book.is_down:
            raise web.HTTPServiceUnavailable
        if request.headers.get("authorization") != f"Bearer {token}":
            raise web.HTTPUnauthorized

    async def put_table(request: web.Request) -> web.Response:
        book.set_table(Table.model_validate_json(await request.read()))
        return _json("{}")

    async def put_grants(request: web.Request) -> web.Response:
        book.set_grants([KeyGrant.model_validate(row) for row in await request.json()])
        return _json("{}")

    async def put_down(request: web.Request) -> web.Response:
        book.is_down = bool(await request.json())
        return _json("{}")

    async def usage(request: web.Request) -> web.Response:
        return web.json_response([row.model_dump(mode="json") for row in book.rows])

    async def state(request: web.Request) -> web.Response:
        state: dict[str, Any] = {
            "rows_taken": book.rows_taken,
            "rows_again": book.rows_again,
            "problems": book.problems,
            "gateways": [sync.model_dump(mode="json") for sync in book.gateways.values()],
        }
        return web.json_response(state)

    app = web.Application(client_max_size=SYNC_BODY_BYTES_MAX)
    app.router.add_post(SYNC_PATH, sync)
    app.router.add_post(KEYS_PATH, keys)
    app.router.add_put("/fake/table", put_table)
    app.router.add_put("/fake/grants", put_grants)
    app.router.add_put("/fake/down", put_down)
    app.router.add_get("/fake/usage", usage)
    app.router.add_get("/fake/state", state)
    return app


def _json(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json")
