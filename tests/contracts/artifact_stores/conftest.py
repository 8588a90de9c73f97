"""Both stores, each behind a real HTTP server: ours for the disk, moto's for S3."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from moto.server import ThreadedMotoServer

from jobs.artifacts import choice as stores
from jobs.artifacts.choice import get_store
from jobs.artifacts.s3 import make_client
from jobs.artifacts.store import Store

PART_BYTES = 5 * 1024 * 1024  # the least that S3 takes


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, settings, tmp_path) -> Iterator[Store]:
    settings.SOUK_ARTIFACT_STORE = request.param
    if request.param == "local":
        settings.SOUK_DATA = tmp_path
        settings.SOUK_API_URL = request.getfixturevalue("live_server").url
    else:
        endpoint = request.getfixturevalue("s3_endpoint")
        settings.SOUK_S3_ENDPOINT = endpoint
        settings.SOUK_S3_BUCKET = "souk"
        settings.SOUK_S3_ACCESS_KEY, settings.SOUK_S3_SECRET_KEY = "alice", "not-a-secret"
        httpx.post(f"{endpoint}/moto-api/reset")
        make_client(endpoint=endpoint, region="", access_key="a", secret_key="b").create_bucket(Bucket="souk")
    stores._store_for.cache_clear()
    found = get_store()
    found.part_bytes = PART_BYTES
    yield found
    stores._store_for.cache_clear()
