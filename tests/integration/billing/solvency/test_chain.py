"""The contract's balance is read from the chain itself, at the block up to which the books follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from billing.models import SolvencyReport
from billing.solvency import publishing
from jobs.client.wallet.known_contracts import KnownContract, remember_contract
from tests.integration.billing.chain.town import TOKEN, Town, devchain_town
from tests.integration.billing.solvency.scenes import changed, publish, signed
from tests.integration.billing.solvency.shell import URL, Shell

BROKEN = 10


@pytest.fixture
def town(db: None, settings: Any) -> Iterator[Town]:
    with devchain_town(settings) as made:
        yield made


def rpc_url(town: Town) -> str:
    return town.client.config.rpc_urls[0]


def test_the_chain_has_what_the_report_says(town: Town, shell: Shell) -> None:
    town.buy_credits("Alice", shell.owner, 7 * TOKEN)
    town.deposit("Bob", 2 * TOKEN)
    town.follow(2)
    report = publish()
    [place] = [one["chain"] for one in report.body["assets"] if one["asset"] == "TUSD"]
    assert (place["contract"], place["token"]) == (town.contract.address, town.token) and place["block"] is not None
    found = shell.verify("--rpc-url", rpc_url(town))
    assert found.status == 0, found
    assert found.json["own"]["TUSD"] == {"customer_available": "7000000"}
    assert found.json["chain"] == {"TUSD": {"block": place["block"], "balance": "9000000", "liabilities": "9000000"}}
    town.buy_credits("Alice", shell.owner, TOKEN)  # later blocks count for nothing
    assert shell.run("solvency", "--json", "--rpc-url", rpc_url(town)).json["chain"]["TUSD"]["balance"] == "9000000"
    shown = shell.run("solvency").out
    assert f"balanceOf(address)(uint256)' {place['contract']} --block {place['block']}" in shown


def test_a_report_of_more_than_the_chain_has_is_found(town: Town, shell: Shell) -> None:
    town.buy_credits("Alice", shell.owner, 7 * TOKEN)
    town.follow(2)
    report = publish()

    def more(body: dict[str, Any]) -> None:
        for one in body["assets"]:
            if one["asset"] == "TUSD":
                one.update(held="8000000", own={"fee_revenue": "1000000"}, mirrors={"chain_escrow": "8000000"})

    lying = signed(changed(report.body, more))
    shell.lies.append(lambda path, answer: {**answer, "results": [lying]} if path == "/solvency/reports" else answer)
    assert shell.run("solvency").status == 0
    ended = shell.run("solvency", "--json", "--rpc-url", rpc_url(town))
    assert (ended.status, "the chain has 7000000 there" in ended.refusal) == (BROKEN, True), ended


OTHER = "0x" + "11" * 20


@pytest.mark.parametrize("other", [{"contract": OTHER}, {"token": OTHER}, {"chain_id": 5}], ids=str)
def test_a_contract_token_or_chain_of_somebody_else_is_not_taken_for_the_known_one(
    town: Town, shell: Shell, other: dict[str, Any]
) -> None:
    """A token of Mallory's has whatever balance she likes, also of the true contract."""
    town.buy_credits("Alice", shell.owner, TOKEN)
    town.follow(2)
    publish()
    true = KnownContract(
        chain_id=town.contract.chain_id,
        contract=town.contract.address,
        token=town.token,
        scale=town.contract.asset.scale,
    )
    known = true.model_copy(update=other)
    remember_contract(URL, "TUSD", known)
    ended = shell.run("solvency", "--json", "--rpc-url", rpc_url(town))
    assert (ended.status, f"until now it was {known}" in ended.refusal) == (BROKEN, True)


def test_in_the_middle_of_a_blocks_events_no_block_is_named(town: Town, shell: Shell) -> None:
    town.buy_credits("Alice", shell.owner, TOKEN)
    town.follow(2)
    report = publish()
    town.buy_credits("Alice", uuid4(), TOKEN)
    town.follow(2)  # booked, and not sealed yet
    assert publishing.publish() is not None
    second = SolvencyReport.objects.get(number=report.number + 1)
    [place] = [one["chain"] for one in second.body["assets"] if one["asset"] == "TUSD"]
    assert place["block"] is None
    found = shell.run("solvency", "--json", "--rpc-url", rpc_url(town))
    assert found.json["chain"]["TUSD"] == {"block": None, "balance": "2000000", "liabilities": "2000000"}
    assert found.json["remarks"] == ["TUSD: the report names no block, so what the chain has is compared with nothing."]


def test_an_endpoint_of_a_chain_without_our_assets_is_refused_and_its_key_not_shown(shell: Shell, town: Town) -> None:
    publish()  # dollars alone
    ended = shell.run("solvency", "--json", "--rpc-url", f"{rpc_url(town)}/v2/a-key")
    assert (ended.status, "none of the report's assets is there" in ended.refusal) == (2, True), ended
    assert "a-key" not in ended.out + ended.err


def test_an_endpoint_that_does_not_answer_is_reported(shell: Shell) -> None:
    publish()
    ended = shell.run("solvency", "--rpc-url", "http://127.0.0.1:1")
    assert ended.status == 6 and "does not answer" in ended.err
