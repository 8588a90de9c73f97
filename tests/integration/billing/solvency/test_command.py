"""`souk solvency` against the real API: what is true is shown, and each way to lie is found on Alice's computer."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from billing.charging import holds
from billing.models import SolvencyReport
from billing.proofs import solvency, sum_tree
from billing.proofs.sum_tree import Node
from billing.solvency import proving, publishing
from jobs.client.verify import solvency as solvency_check
from marketplace.foundation import signing
from tests.integration.billing.scenes import DOLLAR, fund
from tests.integration.billing.solvency.scenes import changed, fund_many, publish, signed
from tests.integration.billing.solvency.shell import Lie, Shell

BROKEN = 10  # ExitCode.BILL_DOES_NOT_VERIFY


@pytest.fixture
def sealed(shell: Shell) -> Shell:
    """Alice has 7 + 3 dollars among some others'."""
    holds.place_hold(owner_id=shell.owner, job_id=uuid4(), amount=3 * DOLLAR)
    fund_many([DOLLAR] * 20)
    publish()
    return shell


def test_anybody_sees_the_newest_report_without_a_key(sealed: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOUK_API_KEY")
    shown = sealed.run("solvency")
    assert shown.status == 0, shown.err
    report = SolvencyReport.objects.get()
    assert report.commitment in shown.out and "$30.00" in shown.out and "Report 1" in shown.out
    printed = sealed.run("solvency", "--json").json
    assert (printed["report"], printed["commitment"], printed["own"]) == (report.body, report.commitment, None)
    assert {has_key for _, has_key in sealed.market.asked} == {False}
    assert sealed.verify().status == 4  # not signed in


def test_alice_proves_what_is_hers_and_her_transfers_say_the_same(sealed: Shell) -> None:
    found = sealed.verify()
    assert found.status == 0, found.err
    assert found.json["own"] == {"USD": {"customer_available": "7000000", "job_hold": "3000000"}}
    assert (found.json["accounts_proven"], found.json["transfers_compared"]) == (2, 2)
    shown = sealed.run("solvency", "--verify")
    assert "$7.00 in customer_available, $3.00 in job_hold" in shown.out
    fund(sealed.owner)  # after the report
    assert sealed.verify().status == 0


def test_who_has_only_a_hold_is_shown_only_that(shell: Shell) -> None:
    holds.place_hold(owner_id=shell.owner, job_id=uuid4(), amount=10 * DOLLAR)
    fund_many([DOLLAR])
    publish()
    assert shell.verify().json["own"] == {"USD": {"job_hold": "10000000"}}


def test_an_exported_proof_is_checked_without_a_server(sealed: Shell, tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    assert sealed.verify("--export", file).status == 0
    sealed.market.asked.clear()
    key = signing.server_public_key_hex()
    again = sealed.verify("--file", file, "--server-key", key)
    assert (again.status, again.json["is_pinned"], sealed.market.asked) == (0, True, [])
    assert again.json["own"] == {"USD": {"customer_available": "7000000", "job_hold": "3000000"}}
    other = sealed.verify("--file", file, "--server-key", "0" * 64)
    assert (other.status, "not by the one that you gave" in other.refusal) == (BROKEN, True)


def test_any_changed_word_of_an_exported_proof_is_found(sealed: Shell, tmp_path: Path) -> None:
    file, forged = tmp_path / "proof.json", tmp_path / "forged.json"
    sealed.verify("--export", file)
    proof = json.loads(file.read_text())
    tried = 0
    for path in list(words_of(proof)):
        if path == ("next",):
            continue  # of pages; a file is whole
        other = copy.deepcopy(proof)
        spot = other
        for name in path[:-1]:
            spot = spot[name]
        spot[path[-1]] = flipped(spot[path[-1]])
        forged.write_text(json.dumps(other))
        with pytest.raises(solvency.SolvencyBroken):
            solvency_check.check_file(forged, server_key=None)
        tried += 1
    assert tried > 40


@pytest.mark.parametrize("text", ["", "[]", "7", '"x"', "{}", '{"report": {}}', "[" * 5000, '{"accounts": null}'])
def test_what_is_no_proof_is_refused_in_words(shell: Shell, tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text)
    ended = shell.verify("--file", file)
    assert ended.status in {2, BROKEN} and "Unexpected" not in ended.refusal
    assert shell.verify("--file", tmp_path / "nowhere").status == 2


@pytest.mark.parametrize(
    "words", [("--file", "x"), ("--export", "x"), ("--verify", "--file", "x", "--report", "1"), ("--report", "0")]
)
def test_options_that_do_not_go_together_are_refused(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell.run("solvency", *words).status == 2


def test_before_the_first_report_it_says_so(shell: Shell) -> None:
    ended = shell.run("solvency")
    assert (ended.status, "no report yet" in ended.err) == (2, True)
    assert shell.run("solvency", "--report", "7", "--json").json["error"]["code"] == "solvency_report_not_found"


# --- a marketplace that lies


def test_an_account_that_is_left_out_of_sums_and_proof_is_missed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The classic: a smaller debt, consistent in itself, signed, and every account that is looked up can be proven."""
    fund_many([DOLLAR] * 20)
    whole, sums = publishing._accounts, publishing._sums
    leave_out(shell, monkeypatch, whole, sums)
    publish()
    assert shell.run("solvency").status == 0  # nothing to be seen from outside
    ended = shell.verify()
    assert ended.status == BROKEN
    assert "your transfers add up to 10000000 base units of USD in customer_available; the report counts 0" in (
        ended.refusal
    )


def test_an_account_that_is_left_out_and_proven_from_another_tree_is_missed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alice is shown a way that is right by itself, from a tree that holds her, under the published report."""
    fund_many([DOLLAR] * 20)
    publish()
    true = proof_of(shell)
    fund_many([DOLLAR])
    leave_out(shell, monkeypatch, publishing._accounts, publishing._sums)
    publish()
    shell.lies.append(lambda path, answer: {**answer, "accounts": true} if path == "/solvency/proof" else answer)
    ended = shell.verify()
    assert ended.status == BROKEN and "leads to a sum of" in ended.refusal


def test_an_account_that_is_counted_lower_is_missed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    publish()
    shell.lies.append(edit_accounts(lambda accounts: accounts[0].update(amount="1")))
    assert "is not proven" in shell.verify().refusal or "leads to" in shell.verify().refusal


def test_alice_is_shown_another_report_than_everybody(sealed: Shell) -> None:
    report = SolvencyReport.objects.get()
    other = signed(changed(report.body, lambda body: body.update(at="2026-01-01T00:00:00+00:00")))
    sealed.lies.append(lambda path, answer: {**answer, "report": other} if path == "/solvency/proof" else answer)
    ended = sealed.verify()
    assert (ended.status, "another report 1 than everybody" in ended.refusal) == (BROKEN, True)


def test_a_history_that_is_published_in_two_ways_is_noticed(sealed: Shell) -> None:
    assert sealed.run("solvency").status == 0  # remembered
    report = SolvencyReport.objects.get()
    other = changed(report.body, lambda body: body.update(at="2026-01-01T00:00:00+00:00"))
    with_other: Lie = lambda path, answer: {**answer, "results": [signed(other)]}  # noqa: E731
    sealed.lies.append(with_other)
    assert "two versions of the history" in sealed.run("solvency", "--json").refusal
    sealed.lies.clear()
    fund(uuid4())
    publish()
    fund(uuid4())
    publish()
    rewritten = changed(SolvencyReport.objects.get(number=2).body, lambda body: body.update(previous="ab" * 32))
    for body in (rewritten, changed(rewritten, lambda body: body.update(previous=report.commitment))):
        sealed.lies[:] = [instead_of_number_2(body)]
        ended = sealed.run("solvency", "--json")
        if body["previous"] == report.commitment:
            assert ended.status == 0  # that is the truth, signed again
        else:
            assert ended.status == BROKEN and "Two histories were published" in ended.refusal


def test_reports_that_are_gone_and_another_key_are_noticed(sealed: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    fund(uuid4())
    publish()
    assert sealed.run("solvency").status == 0
    sealed.lies.append(lambda path, answer: {**answer, "results": answer["results"][1:]})
    assert "you saw report 2, and now 1 is presented as the newest" in sealed.run("solvency", "--json").refusal
    sealed.lies.clear()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    monkeypatch.setattr(signing, "server_key", lambda: Ed25519PrivateKey.from_private_bytes(b"m" * 32))
    body = SolvencyReport.objects.get(number=2).body
    sealed.lies.append(lambda path, answer: {**answer, "results": [signed(body)]})
    assert "is signed by the key" in sealed.run("solvency", "--json").refusal


def test_an_older_report_than_the_one_seen_is_shown_as_not_tied_to_it(sealed: Shell) -> None:
    fund(uuid4())
    publish()
    assert sealed.run("solvency").status == 0
    older = sealed.run("solvency", "--report", "1", "--json")
    assert older.json["remarks"] == ["You saw report 2: whether this older one leads there was not looked at."]
    assert sealed.run("solvency", "--json").json["remarks"] == []  # and 2 is still what was seen


@pytest.mark.parametrize("page", [[], "no", {}, {"results": 5}, {"results": []}, {"results": [], "next_before": "x"}])
def test_pages_of_reports_that_are_none_end_in_words(sealed: Shell, page: Any) -> None:
    assert sealed.run("solvency").status == 0  # remembered
    for _ in range(2):  # so that there is one between, which has to be requested
        fund(uuid4())
        publish()
    is_later = iter([False, *[True] * 100])
    sealed.lies.append(lambda path, answer: page if path == "/solvency/reports" and next(is_later) else answer)
    ended = sealed.run("solvency", "--json")
    assert ended.status == BROKEN and "report" in ended.refusal


@pytest.mark.parametrize("page", [[], "no", {}, {"results": 5}, {"results": [5]}])
def test_a_first_page_that_is_none_ends_in_words(sealed: Shell, page: Any) -> None:
    sealed.lies.append(lambda path, answer: page)
    ended = sealed.run("solvency", "--json")
    assert ended.status == BROKEN and ended.refusal


def test_a_left_out_link_between_two_reports_is_noticed(sealed: Shell) -> None:
    assert sealed.run("solvency").status == 0
    for _ in range(3):
        fund(uuid4())
        publish()
    without: Lie = lambda path, answer: {  # noqa: E731
        **answer,
        "results": [each for each in answer["results"] if each["body"]["number"] != 3],
    }
    sealed.lies.append(without)
    assert sealed.run("solvency").status == BROKEN
    sealed.lies.clear()
    assert sealed.run("solvency").status == 0


SUMS: list[Callable[[dict[str, Any]], object]] = [
    lambda one: one.update(owed="1"),
    lambda one: one.update(owed_to_customers="1"),
    lambda one: one.update(held="1"),
    lambda one: one["mirrors"].update(stripe_balance="5"),
    lambda one: one["own"].update(fee_revenue="-5"),
    lambda one: one.update(leaves=0),
    lambda one: one.update(owed="-1"),
    lambda one: one.update(owed="030000000"),
    lambda one: one.update(owed=30_000_000),
    lambda one: one.update(root="00"),
    lambda one: one.update(scale=-1),
    lambda one: one.pop("in_dispute"),
    lambda one: one.update(owed="9" * 98),
]


@pytest.mark.parametrize("change", SUMS)
def test_sums_that_do_not_add_up_are_found_though_they_are_signed(
    sealed: Shell, change: Callable[[dict[str, Any]], object]
) -> None:
    body = changed(SolvencyReport.objects.get().body, lambda body: change(body["assets"][0]))
    sealed.lies.append(lambda path, answer: {**answer, "results": [signed(body)]})
    assert sealed.run("solvency").status == BROKEN


ACCOUNTS: list[Callable[[list[dict[str, Any]]], object]] = [
    lambda accounts: accounts.pop(),  # one is left out
    lambda accounts: accounts.append(accounts[0]),  # one is shown twice
    lambda accounts: accounts[0].update(index=accounts[0]["index"] ^ 1),  # on the other side
    lambda accounts: accounts[0]["sisters"].reverse(),
    lambda accounts: accounts[0]["sisters"].pop(),
    lambda accounts: accounts[0]["sisters"].append(accounts[0]["sisters"][0]),
    lambda accounts: accounts[0]["sisters"][0].update(sum="0"),
    lambda accounts: accounts[0]["sisters"][0].update(sum="-1"),
    lambda accounts: accounts[0]["sisters"][0].update(sum=str(2**320 - 1)),
    lambda accounts: accounts[0].update(kind="customer_promotion"),
    lambda accounts: accounts[0].update(asset="EUR"),
    lambda accounts: accounts[0].update(job_id=str(uuid4())),
    lambda accounts: accounts[0].update(owner_id=str(uuid4())),
    lambda accounts: accounts[0].update(amount="-7000000"),
    lambda accounts: accounts[0].update(salt="00" * 32),
    lambda accounts: accounts.clear(),
]


@pytest.mark.parametrize("change", ACCOUNTS)
def test_a_proof_of_anything_else_is_found(sealed: Shell, change: Callable[[list[dict[str, Any]]], object]) -> None:
    sealed.lies.append(edit_accounts(change))
    ended = sealed.verify()
    assert ended.status == BROKEN, ended


@pytest.mark.parametrize("trick", ["negative", "wrapped", "larger of both", "swapped"])
def test_a_tree_that_is_built_to_owe_less_is_found_by_the_one_beside_it(
    sealed: Shell, trick: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mallory's account of less than nothing, a sum that wraps around, Maxwell's max(), and children that change sides.

    Each is published and signed, and proven from the very tree that was published.
    """

    def cheat(left: Node, right: Node) -> Node:
        total = max(left.sum, right.sum) if trick == "larger of both" else (left.sum + right.sum) % 2**320
        if trick == "swapped":
            left, right = right, left
        preimage = b"".join(
            part for node in (left, right) for part in (node.hash, (node.sum % 2**320).to_bytes(40, "big"))
        )
        return Node(hashlib.sha256(b"\1" + preimage).digest(), total)

    report, proofs = SolvencyReport.objects.get(), proof_of(sealed)
    alices = [
        solvency.account_leaf(
            each["asset"],
            each["kind"],
            sealed.owner,
            UUID(each["job_id"]) if each["job_id"] else None,
            amount=int(each["amount"]),
            salt=bytes.fromhex(each["salt"]),
        )
        for each in proofs
    ]
    less = {"negative": -9 * DOLLAR, "wrapped": 2**320 - 9 * DOLLAR}.get(trick, 4 * DOLLAR)
    leaves = [*alices, Node(b"m" * 32, less), Node(b"n" * 32, DOLLAR)]
    with monkeypatch.context() as patched:
        patched.setattr(sum_tree, "join", cheat)
        root = sum_tree.root_of(leaves)
        ways = [sum_tree.sisters_of(leaves, place) for place in range(2)]
    owed = str(root.sum)

    def publish_it(body: dict[str, Any]) -> None:
        one = body["assets"][0]
        one.update(leaves=4, root=root.hash.hex(), owed=owed, owed_to_customers=owed, held=owed)
        one["mirrors"] = {"operator_cash": owed}

    lying = signed(changed(report.body, publish_it))
    accounts = [
        {**each, "index": place, "sisters": [{"hash": node.hash.hex(), "sum": str(node.sum)} for node in ways[place]]}
        for place, each in enumerate(proofs)
    ]

    def lie(path: str, answer: Any) -> Any:
        if path == "/solvency/proof":
            return {**answer, "report": lying, "accounts": accounts}
        return {**answer, "results": [lying]} if path == "/solvency/reports" else answer

    sealed.lies.append(lie)
    assert sealed.run("solvency").status == 0  # from outside it looks well
    assert sealed.verify().status == BROKEN


def test_a_leaf_that_two_customers_share_is_no_proof_for_the_second(sealed: Shell) -> None:
    """Where leaves have a salt and an amount only, the second of two with one balance is shown the first one's."""
    bob = fund(uuid4(), 7 * DOLLAR)
    publish()
    others = proving.prove(bob)["accounts"]
    for shown in (others[0], {**others[0], "owner_id": str(sealed.owner)}):
        sealed.lies[:] = [edit_accounts(partial(set_balance, shown))]
        ended = sealed.verify()
        assert ended.status == BROKEN, ended


def set_balance(shown: dict[str, Any], accounts: list[dict[str, Any]]) -> None:
    """In place of Alice's balance."""
    accounts[:] = [shown if each["kind"] == "customer_available" else each for each in accounts]


def instead_of_number_2(body: dict[str, Any]) -> Lie:
    def lie(path: str, answer: Any) -> Any:
        results = [signed(body) if each["body"]["number"] == 2 else each for each in answer["results"]]
        return {**answer, "results": results}

    return lie


def test_a_root_whose_sum_is_published_lower_is_found(sealed: Shell) -> None:
    """The tree is true and all are in it; only the figure that everybody reads is not its sum."""

    def lower(body: dict[str, Any]) -> None:
        body["assets"][0].update(owed="5", owed_to_customers="5", held="5", mirrors={"operator_cash": "5"})

    lying = signed(changed(SolvencyReport.objects.get().body, lower))

    def lie(path: str, answer: Any) -> Any:
        return {**answer, "report": lying} if path == "/solvency/proof" else {**answer, "results": [lying]}

    sealed.lies.append(lambda path, answer: lie(path, answer) if path.startswith("/solvency") else answer)
    assert sealed.run("solvency").status == 0
    sealed.lies[0:0] = [lambda path, answer: {"results": [answer]} if path == "/solvency/reports/1" else answer]
    assert "says that 5 is owed" in sealed.verify().refusal


def test_a_transfer_that_changed_more_than_its_amount_is_no_transfer() -> None:
    one = {"id": "t", "seq": 3, "mode": "single", "asset": "USD", "debit_kind": "a", "credit_kind": "b", "amount": "5"}
    assert solvency.add_up([one | {"change": "5"}], until=3) == {("USD", "b"): 5}
    assert solvency.add_up([one | {"change": "-5"}], until=3) == {("USD", "a"): -5}
    assert solvency.add_up([one | {"change": "0"}], until=3) == {("USD", "a"): -5, ("USD", "b"): 5}
    assert solvency.add_up([one | {"change": "5"}], until=2) == {}
    assert solvency.add_up([one | {"change": "5", "mode": "pending"}], until=3) == {}
    with pytest.raises(solvency.SolvencyBroken, match="changed what you own by 4"):
        solvency.add_up([one | {"change": "4"}], until=3)
    for name in ("seq", "amount", "asset", "mode"):
        with pytest.raises(solvency.SolvencyBroken, match="does not say what it is"):
            solvency.add_up([{key: value for key, value in one.items() if key != name} | {"change": "5"}], until=3)


def test_a_marketplace_that_answers_anything_for_transfers_is_no_proof(sealed: Shell) -> None:
    odd: list[dict[str, Any]] = [{"results": None}, {"results": ["x"]}, {"results": [{}]}, {"results": [None]}]
    for answer in odd:
        sealed.lies[:] = [partial(instead_of_transfers, answer)]
        ended = sealed.verify()
        assert (ended.status, ended.json["error"]["code"]) == (BROKEN, "solvency_does_not_verify"), ended


def instead_of_transfers(answer: dict[str, Any], path: str, true_answer: Any) -> Any:
    return answer if path == "/transfers" else true_answer


def words_of(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """The ways to every plain value."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from words_of(item, (*path, name))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from words_of(item, (*path, place))
    else:
        yield path


def flipped(value: Any) -> Any:
    """Something else of the same form."""
    if value is None:
        return str(uuid4())
    if isinstance(value, int):
        return value + 1
    first = value[0]
    return {"0": "1", "a": "b", "f": "e"}.get(first, "1" if first != "1" else "2") + value[1:]


def edit_accounts(change: Callable[[list[dict[str, Any]]], object]) -> Lie:
    def lie(path: str, answer: Any) -> Any:
        if path == "/solvency/proof":
            change(answer["accounts"])
        return answer

    return lie


def proof_of(shell: Shell) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = proving.prove(shell.owner)["accounts"]
    return found


def leave_out(shell: Shell, monkeypatch: pytest.MonkeyPatch, whole: Any, sums: Any) -> None:
    """The marketplace's own code, but for Alice."""

    def without(seq: int) -> Any:
        return {asset: [row for row in rows if row.owner_id != shell.owner] for asset, rows in whole(seq).items()}

    def less(seq: int) -> Any:
        found = sums(seq)
        for one in found.values():
            one.customers -= 10 * DOLLAR
            one.mirrors["operator_cash"] -= 10 * DOLLAR
        return found

    monkeypatch.setattr(publishing, "_accounts", without)
    monkeypatch.setattr(publishing, "_sums", less)
