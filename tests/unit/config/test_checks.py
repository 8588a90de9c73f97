"""An unsafe configuration is refused, a safe one is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from marketplace.config.checks import (
    check_artifact_store,
    check_email_verification,
    check_keys,
    check_second_factor,
    check_second_store,
    check_settler_key,
    check_transport,
)


def ids_of(found: list[object]) -> list[str]:
    return [str(one.id) for one in found]  # type: ignore[attr-defined]


def test_the_tests_own_settings_are_safe() -> None:
    assert check_transport(None) + check_keys(None) + check_artifact_store(None) == []


@pytest.mark.parametrize("name", ["SOUK_API_URL", "SOUK_SYNC_URL"])
def test_a_site_that_others_reach_needs_https(settings: Settings, name: str) -> None:
    setattr(settings, name, "http://market.example")
    assert ids_of([*check_transport(None)]) == ["souk.E001"]
    setattr(settings, name, "https://market.example")
    assert check_transport(None) == []


def test_an_operator_may_say_that_plain_http_is_meant(settings: Settings) -> None:
    settings.SOUK_API_URL = "http://10.0.0.5:8000"
    settings.SOUK_INSECURE_HTTP = True
    assert check_transport(None) == []


def test_debug_is_for_loopback_only(settings: Settings) -> None:
    settings.DEBUG = True
    settings.SOUK_API_URL = "https://market.example"
    assert ids_of([*check_transport(None)]) == ["souk.E002"]


@pytest.mark.parametrize("secret", ["short", "a" * 60, ""])
def test_a_weak_secret_key_is_refused(settings: Settings, secret: str) -> None:
    settings.SOUK_SECRET_KEY = secret
    assert ids_of([*check_keys(None)]) == ["souk.E003"]


@pytest.mark.parametrize("key", ["", "00" * 32, "zz" * 32, "0123456789abcdef"])
def test_a_signing_key_must_be_random_hex(settings: Settings, key: str) -> None:
    settings.SOUK_SIGNING_KEY = key
    assert ids_of([*check_keys(None)]) == ["souk.E004"]


@pytest.mark.parametrize(
    ("chosen", "url", "found"),
    [
        ("required", "https://market.example", []),
        ("optional", "http://127.0.0.1:8000", []),
        ("optional", "https://market.example", ["souk.W004"]),
        ("of course", "http://127.0.0.1:8000", ["souk.E012"]),
    ],
)
def test_operators_without_a_second_factor_are_for_loopback_only(
    settings: Settings, chosen: str, url: str, found: list[str]
) -> None:
    settings.SOUK_STAFF_SECOND_FACTOR, settings.SOUK_API_URL = chosen, url
    assert ids_of([*check_second_factor(None)]) == found


@pytest.mark.parametrize(
    ("chosen", "url", "backend", "found"),
    [
        ("required", "https://market.example", "smtp", []),
        ("required", "https://market.example", "console", ["souk.W006"]),
        ("off", "http://127.0.0.1:8000", "console", []),
        ("off", "https://market.example", "smtp", ["souk.W005"]),
        ("maybe", "http://127.0.0.1:8000", "smtp", ["souk.E013"]),
    ],
)
def test_addresses_that_nobody_verifies_are_for_loopback_only(
    settings: Settings, chosen: str, url: str, backend: str, found: list[str]
) -> None:
    settings.SOUK_EMAIL_VERIFICATION, settings.SOUK_API_URL = chosen, url
    settings.EMAIL_BACKEND = f"django.core.mail.backends.{backend}.EmailBackend"
    assert ids_of([*check_email_verification(None)]) == found


def test_s3_needs_a_bucket_and_another_store_is_unknown(settings: Settings) -> None:
    settings.SOUK_ARTIFACT_STORE = "s3"
    settings.SOUK_S3_BUCKET = ""
    assert ids_of([*check_artifact_store(None)]) == ["souk.E006"]
    settings.SOUK_ARTIFACT_STORE = "ftp"
    assert ids_of([*check_artifact_store(None)]) == ["souk.E005"]


def second_store(settings: Settings, tmp_path: Path, **changed: Any) -> list[str]:
    """What is found of a second store in a folder beside the first, with changes."""
    for name in ("data", "other disk"):
        (tmp_path / name).mkdir(exist_ok=True)
    settings.SOUK_DATA = tmp_path / "data"
    known = {"STORE": "local", "FOLDER": str(tmp_path / "other disk"), "MIB_PER_SECOND": 100.0, "HOURS_MAX": 6.0}
    for name, value in (known | changed).items():
        setattr(settings, f"SOUK_ARTIFACT_SECOND_{name}", value)
    return ids_of([*check_second_store(None)])


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, ["souk.W007"]),  # another folder of the same disk
        ({"STORE": ""}, []),
        ({"STORE": "ftp"}, ["souk.E018"]),
        ({"STORE": "s3", "S3_BUCKET": ""}, ["souk.E021"]),
        ({"STORE": "s3", "S3_BUCKET": "elsewhere"}, []),
        ({"FOLDER": "beside"}, ["souk.E021"]),
        ({"FOLDER": "/proc/self"}, []),  # of another file system
        ({"FOLDER": "/proc/self", "MIB_PER_SECOND": 0.0}, ["souk.E019"]),
        ({"FOLDER": "/proc/self", "HOURS_MAX": float("nan")}, ["souk.E019"]),
    ],
)
def test_a_second_store_is_another_one(
    settings: Settings, tmp_path: Path, changed: dict[str, Any], found: list[str]
) -> None:
    assert second_store(settings, tmp_path, **changed) == found


def test_a_second_store_is_neither_the_first_nor_within_it(settings: Settings, tmp_path: Path) -> None:
    for folder in ("data/artifacts", "data/artifacts/copy", "data", "."):
        assert second_store(settings, tmp_path, FOLDER=str(tmp_path / folder)) == ["souk.E022"]
    settings.SOUK_ARTIFACT_STORE = "s3"
    settings.SOUK_S3_ENDPOINT, settings.SOUK_S3_BUCKET = "https://a.example", "souk"
    same = {"STORE": "s3", "S3_ENDPOINT": "https://a.example", "S3_BUCKET": "souk"}
    assert second_store(settings, tmp_path, **same) == ["souk.E022"]
    assert second_store(settings, tmp_path, **{**same, "S3_ENDPOINT": "https://b.example"}) == []


def test_a_chain_without_a_key_that_settles_is_reported(settings: Settings) -> None:
    settings.SOUK_CHAINS = []
    settings.SOUK_CHAIN_KEY = settings.SOUK_CHAIN_SETTLER_KEY = ""
    assert check_settler_key(None) == []
    settings.SOUK_CHAINS = [{"chain_id": 8453, "name": "Base", "rpc_urls": ["https://a.example", "https://b.example"]}]
    assert ids_of([*check_settler_key(None)]) == ["souk.W001"]
    settings.SOUK_CHAIN_KEY = "0x" + "12" * 32
    assert check_settler_key(None) == []
    settings.SOUK_CHAIN_SETTLER_KEY = "not a key"
    [found] = check_settler_key(None)
    assert found.id == "souk.E010"
    assert "SOUK_CHAIN_SETTLER_KEY" in found.msg and "not a key" not in found.msg
