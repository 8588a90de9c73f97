"""What every test stands on: real servers, Django's settings, an empty Redis."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests import services

# At import, not in a hook: folders below may import models in their own conftest, which pytest loads right after this.
services.prepare_environment()
os.environ["DJANGO_SETTINGS_MODULE"] = "marketplace.config.settings"

import django  # noqa: E402
import pytest_django  # noqa: E402
from django.conf import settings  # noqa: E402
from django.db import connection  # noqa: E402

# Passwords of tests need not withstand anybody.
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
django.setup()


@pytest.fixture(autouse=True)
def empty_redis() -> Iterator[None]:
    """Every test that left something in Redis leaves it empty: beats and throttles do not leak into the next one."""
    yield
    from django.core.cache import caches

    if "default" in vars(caches._connections):  # type: ignore[attr-defined]
        caches["default"].clear()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker) -> None:
    """The test database may be emptied between tests; everywhere else the ledger refuses TRUNCATE."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE billing_transfer DISABLE TRIGGER transfer_never_truncated")
    connection.close()
