"""`souk up` from the first start over a crash to the second start."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest
import redis as redis_client

from marketplace.config.embedded import orphans, postgres
from tests.integration.embedded.marketplaces import Up, all_gone, clean_environment, fail_to_start, free_port, wait_for

# Whole marketplaces start, on whatever else the computer does.
pytestmark = [pytest.mark.own_servers, pytest.mark.timeout(1200)]


def sign_in(up: Up, password: str) -> int:
    """The status of the admin's front page after an attempt to sign in."""
    with httpx.Client(base_url=up.url, follow_redirects=True) as browser:
        browser.get("/admin/")
        form = {"email": up.ready["admin_email"], "password": password, "next": "/admin/"}
        form["csrfmiddlewaretoken"] = browser.cookies["csrftoken"]
        page = browser.post("/signin", data=form, headers={"Referer": up.url})
    return 200 if "Log out" in page.text else 401


def remember_something(up: Up) -> None:
    with psycopg.connect(postgres.url_for(up.folder / "run")) as connection:
        connection.execute("CREATE TABLE kept (word text)")
        connection.execute("INSERT INTO kept VALUES ('souk')")


def recall_something(up: Up) -> str:
    with psycopg.connect(postgres.url_for(up.folder / "run")) as connection:
        row = connection.execute("SELECT word FROM kept").fetchone()
    assert row
    return str(row[0])


def can_rewrite(up: Up, name: str) -> list[str]:
    """Which of these statements the database lets this process run."""
    environment = psutil.Process(up.pid_of(name)).environ()
    assert "SOUK_ADMIN_PASSWORD" not in environment
    statements = (
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "UPDATE foundation_event SET actor = actor",
        "DELETE FROM foundation_event",
        "DELETE FROM billing_topup",
        "UPDATE billing_transfer SET amount = amount",
    )
    done = []
    with psycopg.connect(environment["DATABASE_URL"], autocommit=True) as connection:
        assert connection.execute("SELECT count(*) FROM foundation_event").fetchone()
        for statement in statements:
            try:
                connection.execute(statement)
                done.append(statement)
            except psycopg.errors.InsufficientPrivilege:
                continue
    return done


def test_everything_starts_answers_stops_on_ctrl_c_and_is_found_again(short_folder: Path) -> None:
    data, port = short_folder / "data", free_port()
    with Up(data, port) as up:
        assert up.is_well()
        assert set(up.ready["pids"]) == {"postgres", "redis", "web", "sync", "gateway", "worker", "beat", "devchain"}
        assert "Souk" in httpx.get(up.url).text
        password = up.ready["admin_password"]
        assert (sign_in(up, password), sign_in(up, password + "x")) == (200, 401)
        remember_something(up)
        for name in ("web", "sync", "worker", "beat"):
            assert can_rewrite(up, name) == []
        everything = up.processes()
        status, output = up.stop(signal.SIGINT)
    assert (status, all_gone(everything)) == (0, True)
    assert "stopped" in output
    assert not (data / "postgres" / "postmaster.pid").exists()

    with Up(data, port) as again:
        assert recall_something(again) == "souk"
        assert again.ready["admin_password"] == password
        assert sign_in(again, password) == 200


def test_a_killed_supervisor_ends_its_children_and_the_next_start_ends_who_stayed(
    short_folder: Path,
) -> None:
    data, port, without_chain = short_folder / "data", free_port(), clean_environment(SOUK_CHAINS="[]")
    with Up(data, port, env=without_chain) as up:
        remember_something(up)
        everything = up.processes()
        up.process.kill()
        up.process.wait()
        wait_for(lambda: all_gone(everything), seconds=30)
    # A lock file whose pid belongs to a living stranger, as after the restart of a small container.
    (data / "postgres" / "postmaster.pid").write_text(f"{os.getpid()}\n{data / 'postgres'}\n")
    with orphan_that_will_not_go(data) as stubborn, Up(data, port, env=without_chain) as again:
        assert stubborn.wait(timeout=10) == -signal.SIGKILL
        assert recall_something(again) == "souk"
        assert again.is_well()
        everything = again.processes()
        status, _ = again.stop(signal.SIGTERM)
    assert (status, all_gone(everything)) == (0, True)


@contextmanager
def orphan_that_will_not_go(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child that the dead supervisor had noted, and that goes on."""
    stubborn = subprocess.Popen(["sleep", "600"])
    # A real orphan is collected as soon as it ends; until then, the next start would wait for it.
    threading.Thread(target=stubborn.wait, daemon=True).start()
    rows = [{"name": "web", "pid": stubborn.pid, "started": psutil.Process(stubborn.pid).create_time()}]
    (data / "children.json").write_text(json.dumps(rows))
    try:
        yield stubborn
    finally:
        stubborn.kill()


def test_a_stranger_with_a_remembered_pid_is_left_alone(tmp_path: Path) -> None:
    with psutil.Popen(["sleep", "600"]) as stranger:
        rows = [{"name": "web", "pid": stranger.pid, "started": stranger.create_time() - 60}]
        (tmp_path / "children.json").write_text(json.dumps(rows))
        assert orphans.end_orphans(tmp_path / "children.json") == []
        assert stranger.poll() is None
        stranger.kill()


def test_only_the_owner_may_read_keys_and_reach_the_servers(running: Up) -> None:
    assert stat.S_IMODE((running.folder / "secrets.json").stat().st_mode) == 0o600
    for name in ("run", "postgres", "redis", "logs", "artifacts"):
        assert stat.S_IMODE((running.folder / name).stat().st_mode) == 0o700, name


def test_no_server_listens_beyond_loopback(running: Up) -> None:
    listening = [
        connection.laddr.ip
        for connections in running.of_each(lambda process: process.net_connections("tcp"))
        for connection in connections
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert set(listening) == {"127.0.0.1"}


def test_the_tasks_of_beat_reach_the_worker(running: Up) -> None:
    """Beat -> Redis -> worker -> verb: the Redis queue does not grow, and nothing failed."""
    time.sleep(6)
    client = redis_client.Redis(unix_socket_path=str(running.folder / "run" / "redis.sock"))
    wait_for(lambda: client.llen("souk") <= 2)
    lines = (running.folder / "logs" / "worker.log").read_text().splitlines()
    failed = [line for line in lines if line.startswith("{") and json.loads(line)["level"] in {"error", "critical"}]
    assert failed == []


def test_metrics_answer_with_the_market_and_the_requests(running: Up) -> None:
    httpx.get(running.url)
    text = httpx.get(f"{running.url}/metrics").text
    assert "souk_ledger_sum_usd_micros 0.0" in text
    assert "souk_live_leases 0.0" in text
    assert 'souk_http_requests_total{method="GET",route="",status="200"}' in text


def test_docs_and_schema_come_from_this_server_alone(running: Up) -> None:
    page = httpx.get(f"{running.url}/api/docs").text
    assert "swagger-ui" in page
    assert "https://" not in page
    asset = next(part for part in page.split('"') if part.endswith("swagger-ui-bundle.js"))
    assert httpx.get(f"{running.url}{asset}").status_code == 200
    assert "openapi: 3" in httpx.get(f"{running.url}/api/schema").text


def test_a_folder_in_use_is_refused_and_its_marketplace_goes_on(running: Up) -> None:
    output = fail_to_start("--data", str(running.folder), "--port", str(free_port()))
    assert f"Another `souk up` uses {running.folder} (process {running.process.pid})" in output
    assert running.is_well()


def answers_without_refusal(port: int) -> bool:
    """What a dying process had accepted dies with it; a connection that is refused raises."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=60).status_code == 200
    except (httpx.RemoteProtocolError, httpx.ReadError):
        return False


def test_nobody_is_refused_while_a_killed_web_and_sync_start_again(running: Up) -> None:
    for name in ("web", "sync"):
        os.kill(running.ready["pids"][name], signal.SIGKILL)
    for port in (running.port, running.port + 1, running.port + 3):
        wait_for(lambda port=port: answers_without_refusal(port), seconds=60)
