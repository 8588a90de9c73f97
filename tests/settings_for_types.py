"""The settings as mypy's Django plugin loads them: it needs names and types, and no server."""

import os

from tests.services import TEST_SECRETS

for _name, _value in {**TEST_SECRETS, "DATABASE_URL": "postgresql:///souk", "REDIS_URL": "redis://localhost/0"}.items():
    os.environ.setdefault(_name, _value)
os.environ.setdefault("SOUK_DATA", "/nonexistent")

from marketplace.config.settings import *  # noqa: E402, F403
