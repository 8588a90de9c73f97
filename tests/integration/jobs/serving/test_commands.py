"""`souk keys` and `souk usage`, against the real server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.client import cli
from jobs.client.exit_codes import ExitCode
from jobs.endpoints import usage
from jobs.models import EndpointKey
from marketplace.accounts import api_keys
from marketplace.accounts.models import Organisation
from marketplace.accounts.scopes import Scope
from marketplace.foundation.tokens import hash_token
from tests.integration.jobs.serving import scenes
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def souk(alice: Organisation, live_server: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    user = alice.members.first()
    assert user is not None
    _, text = api_keys.issue(user=user, organisation=alice, name="test", scopes=list(Scope))
    monkeypatch.setenv("SOUK_SERVER", live_server.url)
    monkeypatch.setenv("SOUK_API_KEY", text)

    def call(*words: str, status: int = 0) -> Any:
        with pytest.raises(SystemExit) as left:
            cli.main([*words])
        output = capsys.readouterr().out
        assert left.value.code == status, output
        return json.loads(output) if "--json" in words else output

    return call


def test_key_is_made_used_listed_and_revoked(souk: Any, alice: Organisation) -> None:
    text = souk("keys", "create", "assistant", "--budget", "5.00", "--monthly", "--expires", "30d").strip()
    key = EndpointKey.objects.get(key_hash=hash_token(text))
    assert (key.budget_usd_micros, key.budget_period) == (5 * DOLLAR, "month")
    endpoint = scenes.endpoint(alice)
    usage.ingest_usage(scenes.gateway(), [scenes.row(1, key, endpoint)])
    [listed] = souk("keys", "list", "--json")
    assert (listed["spent_usd_micros"], listed["name"]) == (3 * DOLLAR, "assistant")
    assert "assistant" in souk("keys", "list")
    used = souk("usage", "--by", "key", "--json")
    assert used["total"]["cost_usd_micros"] == 3 * DOLLAR
    assert "assistant" in souk("usage", "--by", "key")
    souk("keys", "revoke", "assistant", "--yes")
    assert souk("keys", "list", "--json") == []
    assert souk("keys", "list", "--all", "--json")[0]["revoked_at"]


@pytest.mark.parametrize(
    "words",
    [
        ("keys", "create", "x", "--budget", "much"),
        ("keys", "create", "x", "--expires", "soon"),
        ("keys", "revoke", "nobody", "--yes"),
        ("usage", "--by", "weather"),
        ("usage", "--from", "yesterday"),
    ],
)
def test_mistakes_are_reported_before_anything_is_asked(souk: Any, words: tuple[str, ...]) -> None:
    souk(*words, status=ExitCode.USAGE)
    assert not EndpointKey.objects.exists()
