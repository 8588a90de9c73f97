"""Alice buys in a browser, Bob provides a node, Mallory looks for what is not hers."""

from __future__ import annotations

import pytest
from django.test import Client

from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from tests import stage
from tests.integration.portal.chat.conftest import sign_in
from tests.stage import DOLLAR


@pytest.fixture
def alice(db: None) -> Organisation:
    return stage.organisation("alice", usd_micros=100 * DOLLAR)


@pytest.fixture
def mallory(alice: Organisation) -> Organisation:
    return stage.organisation("mallory", usd_micros=100 * DOLLAR)


@pytest.fixture
def node(alice: Organisation) -> Node:
    return stage.node()


@pytest.fixture
def browser(alice: Organisation, node: Node) -> Client:
    return sign_in(alice)
