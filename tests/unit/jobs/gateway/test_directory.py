"""Nobody learns from a name what they may not call."""

from __future__ import annotations

from jobs.gateway.messages import Table
from jobs.gateway.routing.directory import Directory
from tests.unit.jobs.gateway.stage import BOB, endpoint_for, grant_for


def test_names_mean_what_their_caller_may_call() -> None:
    own, shadowed = endpoint_for("tiny"), endpoint_for("bob/open")
    public, secret = endpoint_for("open", BOB, is_public=True), endpoint_for("tiny", BOB)
    directory = Directory()
    directory.swap("1", Table(endpoints=[own, public, secret]))
    alice, bob = grant_for("alice"), grant_for("bob", BOB)
    assert directory.find("tiny", alice) == own
    assert directory.find("tiny", bob) == secret
    assert directory.find("bob/open", alice) == public
    assert directory.find("bob/open", bob) == public
    assert directory.find("bob/tiny", alice) is None
    assert directory.find("open", alice) is None
    assert [name for name, _ in directory.models_for(alice)] == ["tiny", "bob/open"]
    directory.swap("2", Table(endpoints=[own, public, secret, shadowed]))
    assert directory.find("bob/open", alice) == shadowed, "one's own comes first"
    assert [row for _, row in directory.models_for(alice)] == [shadowed, own]


def test_a_key_for_some_endpoints_finds_no_others_and_none_that_are_not_its_owner_s() -> None:
    own, other = endpoint_for("tiny"), endpoint_for("big")
    public, secret = endpoint_for("open", BOB, is_public=True), endpoint_for("secret", BOB)
    directory = Directory()
    directory.swap("1", Table(endpoints=[own, other, public, secret]))
    narrow = grant_for("alice", endpoint_ids=[own.endpoint_id, secret.endpoint_id])
    assert directory.find("tiny", narrow) == own
    for name in ("big", "bob/open", "bob/secret", "secret"):
        assert directory.find(name, narrow) is None
    assert [name for name, _ in directory.models_for(narrow)] == ["tiny"]
