"""By what name a node keeps what jobs of one organisation leave for each other, and which nodes are given one."""

from __future__ import annotations

import pytest

from jobs.running.assignments import cache_owner, make_assignment
from provider_agent.protocol import CACHE_FEATURE, Assignment
from tests import stage

pytestmark = pytest.mark.django_db(transaction=True)


def told(owner, name="first"):
    """What a new job of theirs is known by on its node; the job ends."""
    job, leases = stage.running_job(owner, name=name)
    payload = make_assignment(leases[0]).payload
    for lease in leases:
        stage.finish(lease)
    return job, Assignment.model_validate_json(payload).cache_owner


def learn(node):
    node.facts |= {"runtime_features": [CACHE_FEATURE, "requirements"]}
    node.save(update_fields=["facts"])


def test_jobs_of_one_organisation_share_a_name_that_no_other_has(alice):
    learn(stage.node("bobs"))
    carol = stage.organisation("carol", usd_micros=100 * stage.DOLLAR)
    job, first = told(alice)
    _, second = told(alice, name="second")
    _, hers = told(carol, name="third")
    assert len(first) == 32
    assert first == second != hers
    assert str(job.organisation_id) not in first


def test_an_own_command_is_given_none(alice):
    learn(stage.node("bobs"))
    _, leases = stage.running_job(alice, **stage.OWN_COMMAND)
    assert "cache_owner" not in make_assignment(leases[0]).payload


def test_an_own_command_that_needs_packages_is_given_one(alice):
    learn(stage.node("bobs"))
    _, first = told(alice)
    own = {**stage.OWN_COMMAND, "files": ["wheels", "requirements.txt"], "requirements": "requirements.txt"}
    _, leases = stage.running_job(alice, name="own", **own)
    assert Assignment.model_validate_json(make_assignment(leases[0]).payload).cache_owner == first != ""


def test_each_node_is_given_another_name_for_it(alice):
    learn(stage.node("bobs"))
    _, (lease,) = stage.running_job(alice)
    first, other = cache_owner(lease), stage.node("daves")
    learn(other)
    lease.node = other
    assert first != cache_owner(lease) != ""


@pytest.mark.parametrize("features", [None, [], {"cache": 1}])
def test_an_older_agent_is_given_none(alice, features):
    node = stage.node("bobs")
    node.facts |= {"runtime_features": features} if features is not None else {}
    node.save(update_fields=["facts"])
    _, (lease,) = stage.running_job(alice)
    assert cache_owner(lease) == ""
    assert "cache_owner" not in make_assignment(lease).payload, "it refuses what it does not know"
