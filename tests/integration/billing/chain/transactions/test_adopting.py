"""A key was used elsewhere by its operator: the marketplace goes on after that, and makes no call twice."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from billing.chain.contract import deploy
from billing.chain.errors import NonceRefused
from billing.chain.keys import Role, key_for
from billing.chain.reading import builds
from billing.chain.transactions import adopting, planning
from billing.models import Alert, ChainTransaction, Signer, Transfer
from billing.states.chain import TransactionState as State
from marketplace.config.commands.chain import app
from marketplace.foundation.models import Event
from tests.integration.billing.chain.town import Town
from tests.integration.billing.scenes import assert_ledger_is_true, race

RUNNER = CliRunner()


def plan(town: Town) -> ChainTransaction:
    return planning.plan(
        chain_id=town.contract.chain_id,
        role=Role.SETTLER,
        purpose="cancelNonce",
        to=town.contract.address,
        data=builds.encode(builds.ESCROW, "cancelNonce", [uuid4().int]),
        business_key=str(uuid4()),
    )


def use_elsewhere(town: Town, times: int = 2) -> str:
    """The operator sends with the marketplace's own key, from a wallet program."""
    key = key_for(Role.SETTLER)
    for _ in range(times):
        data = builds.encode(builds.ESCROW, "cancelNonce", [uuid4().int])
        deploy.send(town.client, key, data=data, to=town.contract.address, purpose="cancelNonce")
    return key.address


def state_of(one: ChainTransaction) -> str:
    one.refresh_from_db()
    return one.state


def souk(address: str, *words: str, answer: str = "") -> Any:
    words = ("adopt-nonce", "--chain-id", "31337", address, *words)
    return RUNNER.invoke(app, words, input=answer)


@pytest.fixture
def stopped(town: Town) -> tuple[str, ChainTransaction]:
    """One of ours is final; then the key was used elsewhere, and what is planned next is not signed."""
    plan(town)
    town.follow(3)
    address = use_elsewhere(town)
    waiting = plan(town)
    town.follow(3)
    assert state_of(waiting) == State.PLANNED
    assert Alert.objects.open().get(kind="chain_nonce").subject == address
    return address, waiting


def test_an_adopted_nonce_lets_the_key_sign_again_and_makes_no_call_twice(
    town: Town, stopped: tuple[str, ChainTransaction]
) -> None:
    address, waiting = stopped
    before = Signer.objects.get().next_nonce
    posted = Transfer.objects.count()
    answer = json.loads(souk(address, "--yes", "--json").stdout)
    assert (answer["was"], answer["is"]) == (before, before + 2)
    assert Transfer.objects.count() == posted  # nothing is booked
    assert not Alert.objects.open().filter(kind="chain_nonce").exists()
    event = Event.objects.get(subject_kind=adopting.EVENT_KIND)
    assert (event.from_state, event.to_state, event.data["address"]) == (str(before), str(before + 2), address)
    town.follow(3)
    assert (state_of(waiting), waiting.nonce) == (State.FINAL, before + 2)
    assert town.client.nonce(address) == before + 3
    assert Transfer.objects.filter(code="gas").count() == 2  # ours, once each
    assert_ledger_is_true()


def test_the_operator_is_asked_and_may_say_no(stopped: tuple[str, ChainTransaction]) -> None:
    address, _ = stopped
    before = Signer.objects.get().next_nonce
    refused = souk(address, answer="n\n")
    assert refused.exit_code == 1 and f"{before} by our count, {before + 2} mined" in refused.output
    silent = souk(address, "--json")
    assert silent.exit_code == 1 and "add --yes" in silent.output
    assert Signer.objects.get().next_nonce == before
    assert souk(address, answer="y\n").exit_code == 0
    assert Signer.objects.get().next_nonce == before + 2


def test_what_is_as_we_count_it_what_is_unknown_and_what_moved_on_is_refused(
    town: Town, stopped: tuple[str, ChainTransaction], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, _ = stopped
    chain_id, mined = town.contract.chain_id, adopting.standing_of(town.contract.chain_id, address).mined
    with pytest.raises(NonceRefused, match="and not at"):
        adopting.adopt_nonce(chain_id, address, expected=mined - 1, actor="operator")
    with pytest.raises(NonceRefused, match="signed nothing"):
        adopting.adopt_nonce(chain_id, town.key("Alice").address, expected=1, actor="operator")
    with monkeypatch.context() as patch:
        patch.setattr(type(town.client), "final", lambda client: 1)
        with pytest.raises(NonceRefused, match="not final"):
            adopting.adopt_nonce(chain_id, address, expected=mined, actor="operator")
    adopting.adopt_nonce(chain_id, address, expected=mined, actor="operator")
    with pytest.raises(NonceRefused, match="are ours"):
        adopting.adopt_nonce(chain_id, address, expected=mined, actor="operator")
    assert "are ours" in souk(address, "--yes").output
    assert souk("0x12", "--yes").exit_code == 1


@pytest.mark.django_db(transaction=True)
def test_nothing_is_adopted_while_a_dispatcher_is_at_work(town: Town, stopped: tuple[str, ChainTransaction]) -> None:
    address, _ = stopped
    chain_id = town.contract.chain_id
    mined = adopting.standing_of(chain_id, address).mined

    def adopt() -> object:
        return adopting.adopt_nonce(chain_id, address, expected=mined, actor="operator")

    with planning.lock(f"signer:{chain_id}:{address}") as is_mine:
        assert is_mine
        [answer] = race([adopt])
        assert isinstance(answer, NonceRefused) and "at this moment" in str(answer)
    answers = race([adopt, adopt, adopt])
    assert len([each for each in answers if isinstance(each, Signer)]) == 1, answers
