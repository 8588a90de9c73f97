"""Everybody who might call, and what each of them has.

A caller of people's routes is a client with an API key or a session; a node signs each request; a gateway has a token.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

from django.test import Client
from rest_framework.test import APIClient

from marketplace.accounts.models import Membership, Organisation, Role, User
from marketplace.accounts.scopes import ROLE_SCOPES, Scope
from marketplace.nodes.models import Provider
from tests.integration.config.access.table import AGENT, GATEWAY, MEMBER, OPEN, SESSION, SIGNED_IN, STAFF, WHOLE
from tests.integration.nodes.agent import Agent
from tests.people import join, sign

GATEWAY_TOKEN: Final = "the gateways' token of this test"
ELSEWHERE: Final = "198.51.100.7"  # the test client's own address is loopback, where metrics are open
WRONG_KEYS: Final = frozenset({"gateway", "gateway without a token", "unknown key"})  # for people's routes
EVERYBODY: Final = frozenset({OPEN})
PLACEHOLDERS: Final = {"str:": "some-name", "int:": "1", "path:": "some/key"}

Call = Callable[[str, str], Any]


def address_of(route: str) -> str:
    """The route with an id of nothing in each place."""
    address = re.sub(r"\^?checks/.*\$$", f"checks/{uuid4()}/begin", route)
    address = re.sub(r"\^?links/.*\$$", f"links/{uuid4()}", address)
    for kind, text in PLACEHOLDERS.items():
        address = re.sub(rf"<{kind}\w+>", text, address)
    return re.sub(r"<uuid:\w+>", lambda _: str(uuid4()), address)


def ask(client: Client, method: str, address: str, **headers: str) -> Any:
    """One request with an empty JSON object as its body where it has one."""
    given = {"Idempotency-Key": str(uuid4()), **headers}
    body = {} if method == "GET" else {"data": "{}", "content_type": "application/json"}
    return getattr(client, method.lower())(address, headers=given, REMOTE_ADDR=ELSEWHERE, **body)


class Callers:
    """A user of each role in Alice's organisation, Bob's node, a gateway, an operator.

    `calls` has how each of them calls, `has` what they have, both by name.
    """

    def __init__(self) -> None:
        owner = self._owner("alice")
        Provider.objects.create(organisation=owner.organisation, display_name="Alice")
        self.has: dict[str, frozenset[str]] = {}
        self.calls: dict[str, Call] = {}
        self._add("anonymous", self._by_client(Client()))
        for scope in Scope:
            self._add(f"key {scope}", self._by_client(sign(owner, [scope])), SIGNED_IN, MEMBER, scope)
        self._add("key of everything", self._by_client(sign(owner)), SIGNED_IN, WHOLE, MEMBER, *Scope)
        for role in Role:
            member = owner if role == Role.OWNER else join(owner, role, role)
            has = (SIGNED_IN, WHOLE, MEMBER, SESSION, *ROLE_SCOPES[role])
            self._add(f"session of {role}", self._by_session(member.user), *has)
        self._add("operator", self._by_session(self._operator()), SIGNED_IN, WHOLE, SESSION, STAFF)
        self._add("node", self._by_node(), AGENT)
        self._add("gateway", self._by_header("Authorization", f"Bearer {GATEWAY_TOKEN}"), GATEWAY)
        self._add("gateway without a token", self._by_header("Authorization", "Bearer "))
        self._add("unknown key", self._by_header("Authorization", "Bearer souk_" + "x" * 43))

    def _add(self, name: str, call: Call, *has: str) -> None:
        self.calls[name], self.has[name] = call, EVERYBODY | frozenset(has)

    def _owner(self, name: str) -> Membership:
        user = User.objects.create_user(f"{name}@example.org")
        organisation = Organisation.objects.create(name=name)
        return Membership.objects.create(user=user, organisation=organisation, role=Role.OWNER)

    def _operator(self) -> User:
        return User.objects.create_superuser("operator@example.org", "correct horse battery")

    def _by_client(self, client: Client | APIClient) -> Call:
        return lambda method, address: ask(client, method, address)

    def _by_session(self, user: User) -> Call:
        client = Client()
        client.force_login(user)
        return self._by_client(client)

    def _by_header(self, name: str, value: str) -> Call:
        return lambda method, address: ask(Client(), method, address, **{name: value})

    def _by_node(self) -> Call:
        agent = Agent()
        agent.enrol(Provider.objects.create(organisation=self._owner("bob").organisation, display_name="Bob"))

        def call(method: str, address: str) -> Any:
            body = b"" if method == "GET" else b"{}"
            return ask(Client(), method, address, **agent.headers(method, address, body))

        return call


def is_refused(answer: Any) -> bool:
    """Whether the caller was turned away, for who they are or for wrong passwords, before anything was looked at."""
    if answer.status_code == 302:
        return "/signin" in answer["Location"] or "/admin/login/" in answer["Location"]
    if answer.status_code == 400 and answer["Content-Type"].startswith("application/json"):
        return bool(answer.json()["code"] == "organisation_required")
    return answer.status_code in {401, 403, 429}


def may(need: str, has: frozenset[str]) -> bool:
    """Whether this caller has all that the row needs."""
    return set(need.split(" ")) <= has
