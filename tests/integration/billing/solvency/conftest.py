"""Alice at her terminal, with ten dollars."""

from __future__ import annotations

import functools
from pathlib import Path

import httpx
import pytest
from django.core.cache import cache

from marketplace.accounts import api_keys, organisations
from marketplace.accounts.models import User
from marketplace.accounts.scopes import Scope
from tests.integration.billing.scenes import fund
from tests.integration.billing.solvency.shell import URL, Shell, ThisProcess


@pytest.fixture
def shell(db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    cache.clear()
    owner = organisations.create(User.objects.create_user("alice@example.org"), "Alice's")
    _, key = api_keys.issue(user=owner.user, organisation=owner.organisation, name="test", scopes=[Scope.BILLING_READ])
    market = ThisProcess()
    monkeypatch.setattr(httpx, "Client", functools.partial(httpx.Client, transport=market))
    monkeypatch.setenv("SOUK_SERVER", URL)
    monkeypatch.setenv("SOUK_API_KEY", key)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Shell(fund(owner.organisation_id), market, capsys)
