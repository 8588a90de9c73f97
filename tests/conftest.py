"""What every test stands on: real servers, Django's settings, an empty Redis."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Generator, Iterator
from typing import Any

import httpx
import httpx._transports.default as httpx_transports
import hypothesis
import pytest
import redis

from tests import bytecode, services

# At import, not in a hook: folders below may import models in their own conftest, which pytest loads right after this.
bytecode.keep()
services.prepare_environment()
os.environ["DJANGO_SETTINGS_MODULE"] = "marketplace.config.settings"

import django  # noqa: E402
import django.urls  # noqa: E402
import pytest_django  # noqa: E402
from django.conf import settings  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import TransactionTestCase  # noqa: E402
from whitenoise.middleware import WhiteNoiseMiddleware  # noqa: E402

from tests import databases, emptying  # noqa: E402

# Passwords of tests need not withstand anybody.
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
django.setup()
# Commands that tests call set Django up again; logging would then write to that test's captured, soon closed output.
settings.LOGGING_CONFIG = None
TransactionTestCase._fixture_teardown = lambda _: emptying.empty_every_table()  # type: ignore[attr-defined]
# Each `httpx.get` makes a client, and each client reads all certificate authorities anew: 25 ms, mostly for plain HTTP.
httpx_transports.create_ssl_context = functools.cache(httpx.create_ssl_context)  # type: ignore[attr-defined]
# Each test client makes its own middleware, and whitenoise's looks for all static files: 10 ms a client.
_find_static_files = WhiteNoiseMiddleware.add_files_from_finders
_static_files: dict[str, Any] = {}


def _add_static_files(middleware: WhiteNoiseMiddleware) -> None:
    if not _static_files:
        _find_static_files(middleware)
        _static_files.update(middleware.files)
    middleware.files.update(_static_files)


WhiteNoiseMiddleware.add_files_from_finders = _add_static_files
# A test that names its routes makes Django forget what it knows of all, twice; none here changes what a module has.
django.urls.clear_url_caches = lambda: None
logging.getLogger("httpx").setLevel(logging.WARNING)  # a line a request would hide everything else
_redis = redis.Redis.from_url(os.environ["REDIS_URL"])

# Where SOUK_NO_SKIPS=1 says that every real part is there, only these may still skip.
MAY_SKIP = ("gpu", "live_stripe", "stripe_fixtures")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Workers inherit the environment; they find the settings as this process did, after their own Redis database.

    Named in the environment, the settings would be loaded there by pytest-django before this file is read.
    """
    os.environ.pop("DJANGO_SETTINGS_MODULE", None)
    databases.name_template()


# How long an example takes says what else the computer does, and fails no property.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")

# `make soak` and .ci/run: how many times as many examples Hypothesis tries as a property sets, and how many at least.
EXAMPLES_TIMES = float(os.environ.get("SOUK_EXAMPLES_TIMES", "1"))
EXAMPLES_MIN = 10
EXAMPLES_WANTED = "_hypothesis_internal_use_settings"  # where Hypothesis keeps a property's settings


def pytest_itemcollected(item: pytest.Item) -> None:
    """Properties try as many more or fewer examples as SOUK_EXAMPLES_TIMES says.

    `pytest --reruns` tries none of what draws its input again: it would draw another. Fuzz draws the same.
    """
    function = getattr(item, "obj", None)
    is_property = getattr(function, "is_hypothesis_test", False)
    if is_property or any(item.get_closest_marker(name) for name in ("escrow_model", "money_model")):
        item.add_marker(pytest.mark.flaky(reruns=0))
    if EXAMPLES_TIMES != 1 and is_property:
        wanted = getattr(function, EXAMPLES_WANTED, None) or hypothesis.settings.default
        if not getattr(function, "souk_has_other_examples", False):
            count = max(round(wanted.max_examples * EXAMPLES_TIMES), min(wanted.max_examples, EXAMPLES_MIN))
            target = getattr(function, "__func__", function)
            setattr(target, EXAMPLES_WANTED, hypothesis.settings(wanted, max_examples=count))
            target.souk_has_other_examples = True


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is only for `make soak` is left out, unless it is run by its name.

    Files that take minutes come first among several workers, so that none is left alone with one at the end.
    """
    if os.environ.get("SOUK_SOAK") != "1" and not any("::" in word for word in config.args):
        left_out = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    if "PYTEST_XDIST_WORKER" in os.environ:
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)


def pytest_sessionfinish() -> None:
    """The process that started the others clears up after all."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        bytecode.forget_what_is_gone()
        databases.remove_template()


@pytest.fixture(autouse=True)
def empty_redis() -> Iterator[None]:
    """Every test leaves Redis empty: beats and throttles do not leak into the next one."""
    yield
    _redis.flushdb()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings: None, django_db_blocker: pytest_django.DjangoDbBlocker
) -> None:
    """Workers copy a migrated database."""
    with django_db_blocker.unblock():
        databases.copy_template()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker) -> None:
    """The test database may be emptied between tests; everywhere else the ledger refuses TRUNCATE."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE billing_transfer DISABLE TRIGGER transfer_never_truncated")
    connection.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where SOUK_NO_SKIPS=1 says that everything is there, a test that skips has failed."""
    report = yield
    is_excused = any(item.get_closest_marker(name) for name in MAY_SKIP) or hasattr(report, "wasxfail")
    if report.skipped and os.environ.get("SOUK_NO_SKIPS") == "1" and not is_excused:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} skipped where nothing may skip: {reason}"
    return report
