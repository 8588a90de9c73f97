"""/api/v1/endpoints/{id}/rollback, its former address `take-back`, and rows in the state's former name."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from jobs.endpoints import versions
from jobs.endpoints.views import list_endpoints
from jobs.models import Endpoint, EndpointVersion
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from tests.integration.jobs.api.api_clients import API, client_of, post
from tests.integration.jobs.serving.conftest import deploy, up

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def endpoint(alice: Organisation, bob: Node) -> Endpoint:
    """One with a second version, which has not taken over yet."""
    _, endpoint, _ = up(alice)
    deploy(endpoint, limits={"max_tokens": 10})
    return endpoint


def in_the_former_state(endpoint: Endpoint) -> EndpointVersion:
    """Its newest version, as a process of the version before writes it beside this one."""
    newest = endpoint.versions.latest("number")
    EndpointVersion.objects.filter(pk=newest.pk).update(state="taken_back")
    return newest


def test_alice_rolls_her_endpoint_back(alice: Organisation, endpoint: Endpoint) -> None:
    done = post(client_of(alice), f"/endpoints/{endpoint.pk}/rollback")
    assert done.status_code == 200 and "Deprecation" not in done
    endpoint.refresh_from_db()
    assert endpoint.is_rollback_requested


def test_former_address_rolls_back_and_names_its_successor(alice: Organisation, endpoint: Endpoint) -> None:
    done = post(client_of(alice), f"/endpoints/{endpoint.pk}/take-back")
    assert done.status_code == 200
    assert done["Deprecation"].startswith("@")
    assert done["Link"] == f'<{API}/endpoints/{endpoint.pk}/rollback>; rel="successor-version"'
    endpoint.refresh_from_db()
    assert endpoint.is_rollback_requested


@pytest.mark.parametrize(
    ("action", "code"), [("rollback", "nothing_to_roll_back"), ("take-back", "nothing_to_take_back")]
)
def test_only_version_is_not_rolled_back(alice: Organisation, bob: Node, action: str, code: str) -> None:
    _, endpoint, _ = up(alice)
    refused = post(client_of(alice), f"/endpoints/{endpoint.pk}/{action}")
    assert (refused.status_code, refused.json()["code"]) == (409, code)
    assert ("Deprecation" in refused) == (action == "take-back")


def test_version_in_the_former_state_is_shown_and_treated_as_rolled_back(endpoint: Endpoint) -> None:
    in_the_former_state(endpoint)
    [shown] = list_endpoints([endpoint])
    assert shown.versions[-1].state == "rolled_back"
    last: Any = versions.last_version(endpoint.job)
    assert last.number == 1


def test_the_former_state_ends_in_the_new_one_alone(endpoint: Endpoint) -> None:
    version = in_the_former_state(endpoint)
    rows = EndpointVersion.objects.filter(pk=version.pk)
    with pytest.raises(IntegrityError), transaction.atomic():
        rows.update(state="live")
    assert rows.update(state="rolled_back") == 1
