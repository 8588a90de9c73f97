"""`souk escrow` on a real chain, by the contract's address alone: no marketplace is called, and none is running."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from billing.chain.keys import Role, key_for
from jobs.client.settings import settings_path
from jobs.client.wallet.chain_wallet import ChainWallet
from provider_agent.protocol import id_bytes32
from tests.integration.billing.chain.escrow_shell import NOWHERE, WINDOW, Shells, windowed_town
from tests.integration.billing.chain.town import TOKEN
from tests.integration.billing.scenes import assert_ledger_is_true


@pytest.fixture
def people(
    db: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shells]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SOUK_SERVER", NOWHERE)
    monkeypatch.delenv("SOUK_API_KEY", raising=False)
    with windowed_town(settings, monkeypatch) as town:
        yield Shells(town, tmp_path, capsys)


def test_a_wallet_pays_in_and_takes_out_without_any_marketplace(people: Shells) -> None:
    people.give_tokens("Alice", 10 * TOKEN)
    paid = people.escrow("Alice", "deposit", "7.5")
    assert paid.status == 0, paid
    assert (paid.json["available"], paid.json["is_earlier"]) == ("7500000", False)
    assert people.balance("Alice") == {"available": 7_500_000, "in_wallet": 2_500_000}
    assert people.escrow("Alice", "withdraw", "0.5").json["available"] == "7000000"
    assert people.escrow("Alice", "withdraw", "all").status == 0
    assert people.balance("Alice") == {"in_wallet": 10 * TOKEN}
    again = people.escrow("Alice", "withdraw", "all")
    assert (again.status, "Nothing is available" in again.refusal) == (2, True)
    people.town.follow()
    people.town.assert_books_match()
    assert_ledger_is_true()


def test_for_people_a_balance_has_a_line_for_each_part(people: Shells) -> None:
    people.town.deposit("Alice", 5 * TOKEN)
    job_id = people.open_hold(2 * TOKEN)
    shown = people.look("balance", "--wallet", people.town.key("Alice").address, as_json=False).out
    assert "available                3 TUSD" in shown
    assert "held for jobs            2 TUSD" in shown
    assert f"job {job_id}: 2 TUSD; refundable after 20" in shown


@pytest.mark.parametrize(
    ("seam", "command", "changed"),
    [("before it is sent", "deposit", 3 * TOKEN), ("after it is sent", "withdraw", -3 * TOKEN)],
)
def test_an_interrupted_command_is_finished_by_the_next_and_happens_once(
    people: Shells, monkeypatch: pytest.MonkeyPatch, seam: str, command: str, changed: int
) -> None:
    people.town.deposit("Alice", 5 * TOKEN)
    people.give_tokens("Alice", 5 * TOKEN)
    send = ChainWallet.send

    def interrupted(wallet: ChainWallet, signed: Any) -> None:
        if "allow" not in next((settings_path().parent / "transactions").glob("*.json")).read_text():
            if seam == "after it is sent":
                send(wallet, signed)
            raise KeyboardInterrupt
        send(wallet, signed)

    with monkeypatch.context() as patch:
        patch.setattr(ChainWallet, "send", interrupted)
        assert people.escrow("Alice", command, "3").status == 130
    finished = people.escrow("Alice", command, "3")
    assert (finished.status, finished.json["is_earlier"]) == (0, True), finished
    assert people.balance("Alice")["available"] == 5 * TOKEN + changed
    assert people.escrow("Alice", command, "1").json["is_earlier"] is False
    assert people.balance("Alice")["available"] == 5 * TOKEN + changed + changed // 3


def test_another_command_finishes_what_was_interrupted_and_then_does_its_own(
    people: Shells, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.town.deposit("Alice", 5 * TOKEN)

    def interrupted(wallet: ChainWallet, signed: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ChainWallet, "send", interrupted)
        assert people.escrow("Alice", "withdraw", "1").status == 130
    people.give_tokens("Alice", TOKEN)  # takes the nonce of what was kept
    done = people.escrow("Alice", "deposit", "1")
    assert (done.status, done.json["is_earlier"]) == (0, False), done
    assert "another transaction of the wallet took its place" in done.err
    assert people.balance("Alice") == {"available": 6 * TOKEN}


def test_what_the_chain_refused_in_a_block_is_not_sent_for_ever(
    people: Shells, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two withdrawals of everything, signed at the same time: the second is mined and fails."""
    people.town.deposit("Alice", 5 * TOKEN)
    monkeypatch.setattr(ChainWallet, "estimate", lambda *given: 200_000)
    assert people.escrow("Alice", "withdraw", "5").status == 0
    failed = people.escrow("Alice", "withdraw", "5")
    assert (failed.status, "nothing moved but the gas" in failed.refusal) == (6, True)
    assert people.escrow("Alice", "deposit", "1").status == 0, "nothing is left to finish"


def test_the_customer_shows_contests_and_the_arbiter_divides(people: Shells) -> None:
    people.town.deposit("Alice", 20 * TOKEN)
    job_id = people.open_hold()
    lease_id = people.settle(job_id)
    shown = people.look("show", job_id).json
    assert (shown["hold"]["remaining"], shown["hold"]["customer"]) == ("9000000", people.town.key("Alice").address)
    assert [(each["lease_id"], each["pending"]) for each in shown["leases"]] == [(str(lease_id), "1000000")]
    assert people.balance("Alice") == {"available": 10 * TOKEN, "held": 9 * TOKEN}
    assert people.balance("Bob") == {"pending": TOKEN}
    assert str(lease_id) in people.look("show", job_id, as_json=False).out

    file = people.folder / "log.txt"
    file.write_text("it printed nothing but zeros")
    stranger = people.escrow("Mallory", "challenge", lease_id, "--evidence", file)
    assert (stranger.status, "under this wallet's hold" in stranger.refusal) == (6, True)
    contested = people.escrow("Alice", "challenge", lease_id, "--evidence", file)
    assert contested.json["evidence_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    twice = people.escrow("Alice", "challenge", lease_id, "--evidence", file)
    assert "challenged, and the arbiter may still decide" in twice.refusal
    assert people.look("show", job_id).json["leases"][0]["is_challenged"] is True

    people.town.wallets["arbiter"] = key_for(Role.SETTLER)
    people.town.call("arbiter", "resolve", people.town.key("Alice").address, id_bytes32(lease_id), 400_000, 600_000)
    assert people.balance("Bob") == {"available": 360_000}
    people.town.follow()
    people.town.assert_books_match()


def test_a_lease_is_finalized_by_anybody_after_its_window_and_not_before(people: Shells) -> None:
    people.town.deposit("Alice", 20 * TOKEN)
    lease_id = people.settle(people.open_hold())
    early = people.escrow("Bob", "finalize", lease_id)
    assert early.status == 6
    assert "the time for it has not come. It can be finalized from 20" in early.refusal
    people.pass_time(WINDOW)
    late = people.escrow("Alice", "challenge", lease_id, "--evidence", __file__)
    assert "the time for it has passed" in late.refusal
    assert people.escrow("Mallory", "finalize", lease_id).status == 0
    assert people.balance("Bob") == {"available": 900_000}
    assert "nothing to move" in people.escrow("Bob", "finalize", lease_id).refusal
    assert people.escrow("Bob", "withdraw", "all").status == 0
    assert people.balance("Bob") == {"in_wallet": 900_000}


def test_a_hold_whose_marketplace_is_gone_is_refunded_and_taken_out(people: Shells) -> None:
    people.town.deposit("Alice", 20 * TOKEN)
    job_id = people.open_hold(seconds=600)
    early = people.escrow("Alice", "refund", job_id)
    assert "It can be refunded after 20" in early.refusal
    people.pass_time(600 + 62)
    assert "past its end" in people.look("show", job_id, as_json=False).out
    assert people.escrow("Mallory", "refund", job_id).json["job_id"] == str(job_id)
    assert people.look("show", job_id).json["hold"]["is_closed"] is True
    assert "in the customer's balance already" in people.escrow("Alice", "refund", job_id).refusal
    assert people.escrow("Alice", "withdraw", "all").status == 0
    assert people.balance("Alice") == {"in_wallet": 20 * TOKEN}
    people.town.follow()
    people.town.assert_books_match()


def test_a_provider_stakes_asks_for_it_back_waits_and_takes_it(people: Shells) -> None:
    people.give_tokens("Bob", 10 * TOKEN)
    assert people.escrow("Bob", "stake", "10").json["staked"] == "10000000"
    assert "Nothing of" in people.escrow("Bob", "unstake").refusal
    asked = people.escrow("Bob", "unstake", "4").json
    assert (asked["staked"], asked["unstaking"]) == ("10000000", "4000000")
    assert "It can be taken from 20" in people.escrow("Bob", "unstake").refusal
    assert "more than is staked" in people.escrow("Bob", "unstake", "7").refusal
    people.pass_time(WINDOW)
    assert people.escrow("Bob", "unstake").status == 0
    assert people.balance("Bob") == {"staked": 6 * TOKEN, "in_wallet": 4 * TOKEN}
    assert people.escrow("Bob", "unstake", "all").json["unstaking"] == "6000000"
    people.town.follow()
    people.town.assert_books_match()


def test_a_key_that_signs_for_a_wallet_is_revoked(people: Shells) -> None:
    people.town.deposit("Alice", 20 * TOKEN)
    people.settle(people.open_hold())
    node = people.town.key("Bob's node").address
    assert people.town.view("receiptKeys", people.town.key("Bob").address, node) > 0
    assert people.escrow("Bob", "revoke-key", node).json["receipt_key"] == node
    assert people.town.view("receiptKeys", people.town.key("Bob").address, node) == 0
    again = people.escrow("Bob", "revoke-key", node)
    assert (again.status, "does not sign for" in again.refusal) == (2, True)


def test_wrong_places_are_distinguished(people: Shells) -> None:
    town, key = people.town, ["--wallet-key-file", people.key_file("Alice"), "--yes", "--json"]
    url = ["--rpc-url", people.rpc_url]
    refusals = {
        "not both": ["--asset", "TUSD", "--contract", town.contract.address, *url],
        "no address": ["--contract", "0x12", *url],
        "do not fit (EIP-55)": ["--contract", _mistyped(town.contract.address), *url],
        "no contract at": ["--contract", "0x" + "77" * 20, *url],
        "is no escrow": ["--contract", town.token, *url],
        "and the token is on chain 5": ["--contract", town.contract.address, "--chain-id", "5", *url],
        "does not answer (ConnectError)": ["--contract", town.contract.address, "--rpc-url", NOWHERE],
    }
    for words, place in refusals.items():
        ended = people.run("escrow", "withdraw", "all", *place, *key)
        assert words in ended.refusal, (words, ended)
        assert ended.status in {2, 6}
    unknown = people.look("show", uuid4())
    assert (unknown.status, unknown.json["hold"], unknown.json["leases"]) == (0, None, [])
    assert "has no hold for this job" in people.escrow("Alice", "refund", uuid4()).refusal
    assert "nothing was settled" in people.escrow("Alice", "finalize", uuid4()).refusal


def test_nothing_is_sent_unless_somebody_says_yes(people: Shells) -> None:
    people.town.deposit("Alice", 5 * TOKEN)
    words = ["--contract", people.town.contract.address, "--rpc-url", people.rpc_url]
    ended = people.run("escrow", "withdraw", "all", *words, "--wallet-key-file", people.key_file("Alice"))
    assert (ended.status, "add --yes" in ended.err) == (2, True)
    assert people.balance("Alice") == {"available": 5 * TOKEN}


def test_the_contract_named_once_is_found_without_the_marketplace_and_never_swapped(people: Shells) -> None:
    people.town.deposit("Alice", 5 * TOKEN)
    by_asset = ["--asset", "TUSD", "--rpc-url", people.rpc_url, "--wallet-key-file", people.key_file("Alice")]
    lost = people.run("escrow", "withdraw", "all", *by_asset, "--yes", "--json")
    assert "say --contract" in lost.refusal
    known = {"chain_id": 31337, "contract": people.town.contract.address, "token": people.town.token, "scale": 18}
    file = settings_path().with_name("contracts.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"servers": {NOWHERE: {"TUSD": known}}}))
    lying = people.run("escrow", "withdraw", "all", *by_asset, "--yes", "--json")
    assert "with 6 decimals, by this endpoint" in lying.refusal
    file.write_text(json.dumps({"servers": {NOWHERE: {"TUSD": known | {"scale": 6}}}}))
    assert people.run("escrow", "withdraw", "all", *by_asset, "--yes", "--json").status == 0
    assert people.balance("Alice") == {"in_wallet": 5 * TOKEN}


def _mistyped(address: str) -> str:
    return "0x" + "".join(one.lower() if one.isupper() else one.upper() for one in address[2:])
