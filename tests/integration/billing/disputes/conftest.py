"""A challenge window that is open for a day."""

import pytest


@pytest.fixture(autouse=True)
def open_window(settings):
    settings.SOUK_CHALLENGE_SECONDS = 86400
