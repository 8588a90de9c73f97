"""What callers get from the HTTP entry point, over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from jobs.gateway.messages import EndpointLimits
from tests.unit.jobs.gateway.playing import play
from tests.unit.jobs.gateway.stage import BOB, Stage, chat, endpoint_for, grant_for, key_of, until


def test_alice_asks_and_what_she_used_is_in_the_books(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        answer = await up.post(chat(), headers={"X-Request-ID": "mine-1", "X-Souk-Hedge": "true"})
        assert answer.status == 200
        assert answer.json["echo"] == chat()
        request_id = UUID(answer.headers["X-Request-ID"])
        assert answer.headers["X-Client-Request-ID"] == "mine-1"
        assert "Server" not in answer.headers
        assert up.engine.requests[0].is_hedged
        streamed = await up.post(chat(stream=True))
        assert streamed.body.count(b"data: ") == 5
        assert streamed.headers["Content-Type"] == "text/event-stream"
        await until(lambda: len(up.marketplace.usage) == 2)
        row = up.marketplace.usage[0]
        assert (row.seq, row.request_id, row.key_id) == (1, request_id, grant_for("alice").key_id)
        assert (row.model, row.kind, row.status) == ("tiny", "chat", "ok")
        assert (row.input_tokens, row.output_tokens, row.cost_usd_micros) == (10, 5, 20)

    play(tmp_path, scenario)


def test_a_request_id_that_is_not_sane_is_not_echoed(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        for wrong in ("x" * 129, "a b", "<script>"):
            answer = await up.post(chat(), headers={"X-Request-ID": wrong})
            assert "X-Client-Request-ID" not in answer.headers

    play(tmp_path, scenario)


def test_who_has_no_key_or_a_wrong_one_gets_401_before_anything_else(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        for headers in ({"Authorization": ""}, {"Authorization": "Basic abc"}):
            answer = await up.post(b"{", headers=headers)
            assert (answer.status, answer.code) == (401, "missing_api_key")
        answer = await up.post(b"{", key="mallory")
        assert (answer.status, answer.code, answer.headers["WWW-Authenticate"]) == (401, "invalid_api_key", "Bearer")
        assert (await up.get("/v1/models", key="mallory")).status == 401
        assert up.engine.requests == []

    play(tmp_path, scenario)


def test_a_revoked_key_is_refused_within_a_sync(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        assert (await up.post(chat())).status == 200
        up.marketplace.let(grant_for("alice", refused="revoked"))
        syncs = len(up.marketplace.syncs)
        await until(lambda: len(up.marketplace.syncs) >= syncs + 2)
        answer = await up.post(chat())
        assert (answer.status, answer.code) == (401, "invalid_api_key")

    play(tmp_path, scenario)


def test_what_is_private_and_what_is_not_there_look_the_same(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        answers = set()
        for name in ("bob/secret", "bob/nosuch"):
            answer = await up.post(chat(name))
            error = answer.json["error"]
            assert (answer.status, error["code"], error["param"]) == (404, "model_not_found", "model")
            answers.add(error["message"].replace(name, "NAME"))
            assert (await up.get(f"/v1/models/{name}")).status == 404
        assert len(answers) == 1
        listed = (await up.get("/v1/models")).json
        assert [model["id"] for model in listed["data"]] == ["tiny", "bob/open"]
        assert (await up.get("/v1/models/bob/open")).json["owned_by"] == "bob"
        assert (await up.post(chat("bob/open"))).status == 200

    play(tmp_path, scenario)


def test_a_used_up_budget_is_429_until_there_is_more(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        grant = up.marketplace.let(grant_for("bob", BOB, budget_usd_micros=50))
        assert (await up.post(chat("open"), key="bob")).status == 200
        answer = await up.post(chat("open", max_tokens=1000), key="bob")
        assert (answer.status, answer.code, answer.json["error"]["type"]) == (
            429,
            "insufficient_quota",
            "insufficient_quota",
        )
        assert answer.headers["x-should-retry"] == "false"
        await until(lambda: up.marketplace.usage)
        up.marketplace.let(grant.model_copy(update={"budget_usd_micros": 10_000}))
        syncs = len(up.marketplace.syncs)
        await until(lambda: len(up.marketplace.syncs) >= syncs + 2)
        assert (await up.post(chat("open", max_tokens=1000), key="bob")).status == 200

    play(tmp_path, scenario)


def test_a_slice_that_is_used_up_is_renewed_before_anybody_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.gateway.accounting.key_grants.RENEW_SECONDS_MIN", 0.0)

    async def scenario(up: Stage) -> None:
        up.marketplace.let(grant_for("bob", BOB, budget_usd_micros=60))
        assert (await up.post(chat("open"), key="bob")).status == 200
        up.marketplace.let(grant_for("bob", BOB, budget_usd_micros=10_000))
        up.marketplace.is_away = False
        assert (await up.post(chat("open", max_tokens=500), key="bob")).status == 200

    play(tmp_path, scenario)


def test_rates_are_shown_and_kept(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        up.marketplace.let(grant_for("bob", BOB, requests_per_minute=2, tokens_per_minute=10_000))
        first = await up.post(chat("open"), key="bob")
        assert first.headers["x-ratelimit-remaining-requests"] == "1"
        assert int(first.headers["x-ratelimit-remaining-tokens"]) < 10_000
        assert (await up.post(chat("open"), key="bob")).status == 200
        answer = await up.post(chat("open"), key="bob")
        assert (answer.status, answer.code) == (429, "rate_limit_exceeded")
        assert 1 <= int(answer.headers["Retry-After"]) <= 30
        assert answer.headers["x-ratelimit-remaining-requests"] == "0"

    play(tmp_path, scenario)


def test_an_endpoint_says_why_it_takes_nothing_and_what_it_is_for(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        up.marketplace.serve(endpoint_for("shut", closed="its budget is used up"))
        up.marketplace.serve(endpoint_for("vectors", task="embed"))
        up.marketplace.serve(endpoint_for("small", limits=EndpointLimits(body_bytes=1000)))
        version = str(up.marketplace.version)
        await until(lambda: up.parts.directory.version == version)
        answer = await up.post(chat("shut"))
        assert (answer.status, answer.code) == (503, "model_unavailable")
        assert "budget" in answer.json["error"]["message"]
        assert (await up.post(chat("vectors"))).code == "unsupported_operation"
        answer = await up.post({"model": "vectors", "input": "x"}, path="/v1/embeddings")
        assert answer.status == 200
        answer = await up.post(chat("small", user="x" * 1000))
        assert (answer.status, answer.code) == (413, "request_too_large")

    play(tmp_path, scenario)


def test_addresses_methods_and_types_that_are_wrong_are_refused_in_the_known_form(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        answer = await up.get("/v1/chat/completions")
        assert (answer.status, answer.code, answer.headers["Allow"]) == (405, "method_not_allowed", "POST")
        for path in ("/", "/v1", "/v1/chat", "/v1/modelsx", "/internal/gateway/v1/sync", "/../etc/passwd", "/%2e%2e/x"):
            answer = await up.get(path)
            assert (answer.status, answer.code) == (404, "not_found")
        answer = await up.post(b"{}", headers={"Content-Type": "text/plain"})
        assert (answer.status, answer.code) == (415, "unsupported_media_type")
        assert (await up.get("/healthz")).status == 200

    play(tmp_path, scenario)


def test_an_engine_that_throws_shows_the_caller_nothing_of_it(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        async def broken(request: Any, client: Any) -> None:
            raise RuntimeError("the password is swordfish")

        up.engine.answer = broken  # type: ignore[method-assign]
        answer = await up.post(chat())
        assert (answer.status, answer.code) == (500, "internal_error")
        assert b"swordfish" not in answer.body

    play(tmp_path, scenario)


def test_browsers_of_other_sites_are_let_in_by_name_only(tmp_path: Path) -> None:
    async def closed(up: Stage) -> None:
        answer = await up.post(chat(), headers={"Origin": "https://app.example"})
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]

    async def listed(up: Stage) -> None:
        answer = await up.post(chat(), headers={"Origin": "https://app.example"})
        assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
        answer = await up.post(chat(), headers={"Origin": "https://mallory.example"})
        assert "Access-Control-Allow-Origin" not in answer.headers
        async with up.session.options(
            up.url + "/v1/chat/completions", headers={"Origin": "https://app.example"}
        ) as response:
            assert response.status == 204
            assert "authorization" in response.headers["Access-Control-Allow-Headers"]
        async with up.session.options(
            up.url + "/v1/chat/completions", headers={"Origin": "https://mallory.example"}
        ) as response:
            assert response.status == 405

    play(tmp_path / "closed", closed)
    play(tmp_path / "listed", listed, cors_origins=("https://app.example",))


def test_metrics_are_for_loopback_without_a_proxy_or_for_the_token(tmp_path: Path) -> None:
    async def open_to_loopback(up: Stage) -> None:
        await up.post(chat())
        text = (await up.get("/metrics")).body.decode()
        assert 'souk_gateway_requests_total{code="",route="/v1/chat/completions",status="200"} 1.0' in text
        assert "souk_gateway_spool_bytes" in text
        assert (await up.get("/metrics", headers={"X-Forwarded-For": "6.6.6.6"})).status == 403

    async def by_token(up: Stage) -> None:
        assert (await up.get("/metrics")).status == 403
        assert (await up.get("/metrics", headers={"Authorization": "Bearer counts"})).status == 200

    play(tmp_path / "a", open_to_loopback)
    play(tmp_path / "b", by_token, metrics_token="counts")


def test_requests_under_way_are_bounded(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        up.engine.gate = asyncio.Event()
        held = [asyncio.create_task(up.post(chat())) for _ in range(3)]
        await until(lambda: len(up.engine.requests) == 3)
        answer = await up.post(chat())
        assert (answer.status, answer.code, answer.headers["Retry-After"]) == (503, "server_overloaded", "1")
        up.engine.gate.set()
        assert [(await each).status for each in held] == [200] * 3
        assert (await up.post(chat())).status == 200

    play(tmp_path, scenario, requests_max=3)


def test_a_key_in_use_is_named_in_each_sync_and_never_shown(tmp_path: Path) -> None:
    async def scenario(up: Stage) -> None:
        await up.post(chat())
        syncs = len(up.marketplace.syncs)
        await until(lambda: len(up.marketplace.syncs) >= syncs + 2)
        assert up.marketplace.syncs[-1].keys == [grant_for("alice").key_id]
        assert key_of("alice") not in str(up.marketplace.syncs)
        kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert key_of("alice").encode() not in kept

    play(tmp_path, scenario)
