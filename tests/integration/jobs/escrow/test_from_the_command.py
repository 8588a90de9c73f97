"""A job paid from a wallet by the command alone: `souk launch` signs, a real server takes it, a real chain pays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from billing.account_kinds import AccountKind
from billing.books.ledger import balance
from billing.models import EscrowHold
from billing.states.chain import EscrowHoldState
from jobs.client import cli
from jobs.client.errors import ServerUnreachable, TransferFailed
from jobs.client.sdk import Souk
from jobs.client.wallet.authorizing import is_escrow
from jobs.client.wallet.key_file import read_wallet
from jobs.models import Job
from jobs.spec import parse
from jobs.states import JobState
from marketplace.accounts import api_keys
from marketplace.accounts.models import Organisation
from marketplace.accounts.scopes import Scope
from marketplace.nodes.models import Node
from tests import stage
from tests.integration.billing.chain.town import Town
from tests.integration.jobs.escrow import scenes
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)

JOB_FILE = """\
kind: train
name: from-the-wallet
payment: {asset: TUSD, mode: escrow}
resources: {gpus: 2}
budget: {max_total: 4.00, max_per_gpu_hour: 1.00, deadline: 2h}
command: python train.py
"""


@dataclass
class Shell:
    """Alice at her own computer, signed in."""

    town: Town
    url: str
    key: str
    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def rpc_url(self) -> str:
        return self.town.client.config.rpc_urls[0]

    def key_file(self, who: str = "Alice") -> Path:
        file = self.folder / f"{who}.key"
        file.write_text(self.town.secret(who))
        file.chmod(0o600)
        return file

    def run(self, *words: object) -> tuple[int, str, str]:
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main([str(word) for word in words])
        out, err = self.capsys.readouterr()
        assert self.town.secret("Alice").removeprefix("0x") not in out + err
        return int(left.value.code or 0), out, err

    def launch(self, *more: object) -> tuple[int, Any]:
        status, out, _ = self.run("launch", self.job_file(), "--yes", "--detach", "--json", *more)
        return status, json.loads(out)

    def job_file(self, text: str = JOB_FILE) -> Path:
        file = self.folder / "job.yaml"
        file.write_text(text)
        return file


@pytest.fixture
def shell(
    town: Town,
    alice: Organisation,
    live_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    _, key = api_keys.issue(user=alice.members.get(), organisation=alice, name="test", scopes=tuple(Scope))
    monkeypatch.setenv("SOUK_SERVER", live_server.url)
    monkeypatch.setenv("SOUK_API_KEY", key)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Shell(town, live_server.url, key, tmp_path, capsys)


def test_a_launch_signs_and_the_job_is_held_run_paid_and_shown(shell: Shell, alice: Organisation, bob: Node) -> None:
    status, printed = shell.launch("--wallet-key-file", shell.key_file(), "--rpc-url", shell.rpc_url)
    assert status == 0, printed
    job_id = printed["job"]["job_id"]
    hold = EscrowHold.objects.get(pk=job_id)
    assert (int(hold.amount), hold.customer) == (4 * DOLLAR, shell.town.key("Alice").address)
    shell.town.follow(2)
    shell.town.pass_seconds(scenes.SECONDS_HELD)
    job = Job.objects.get(pk=job_id)
    [lease] = scenes.start(job)
    scenes.use(lease, seconds=1800, ms=1_700_000)
    stage.finish(lease)
    scenes.pass_time(shell.town)
    job.refresh_from_db()
    assert job.state == JobState.COMPLETED
    hold.refresh_from_db()
    assert hold.state == EscrowHoldState.CLOSED
    assert shell.town.owed(AccountKind.WALLET_AVAILABLE, "Bob") > 0
    assert balance(alice.id, AccountKind.CUSTOMER_AVAILABLE, asset_id=shell.town.asset_id) == 0
    where = ["--asset", "TUSD", "--rpc-url", shell.rpc_url]
    status, out, _ = shell.run("escrow", "show", job_id, *where, "--json")
    seen = json.loads(out)
    assert (status, seen["hold"]["is_closed"]) == (0, True)
    assert [each["lease_id"] for each in seen["leases"]] == [str(lease.pk)]
    shell.town.assert_books_match()
    status, out, _ = shell.run("show", job_id)
    assert status == 0
    for words in ("hold      closed", f"of wallet {hold.customer}", f"contract {hold.contract.address}", "paid, "):
        assert words in out.replace("\n", " ").replace("  ", " ") or words in out, (words, out)
    file = shell.folder / "bill.json"
    assert shell.run("bill", job_id, "--export", file)[0] == 0
    status, out, _ = shell.run("bill", "--verify", file, "--json")
    body = json.loads(out)
    assert (status, body["verified"], body["body"]["escrow"]["state"]) == (0, True, "closed")


def test_without_a_wallet_nothing_is_asked_of_the_server(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOUK_SERVER", "http://127.0.0.1:1")
    status, printed = shell.launch()
    assert (status, printed["error"]["code"]) == (2, "usage")
    assert "--wallet-key-file FILE" in printed["error"]["message"]
    credits_file = shell.job_file(JOB_FILE.replace(", mode: escrow", ""))
    status, out, _ = shell.run("launch", credits_file, "--yes", "--json", "--wallet-key-file", shell.key_file())
    assert (status, "no wallet signs anything" in out) == (2, True)


def test_a_plan_needs_no_wallet_and_says_what_it_will_sign(shell: Shell, bob: Node) -> None:
    status, out, _ = shell.run("plan", shell.job_file())
    assert status == 0
    assert "your own wallet" in out
    assert shell.town.contract.address in out.replace("\n", "")
    status, out, _ = shell.run("assets", "--json")
    assert [each["modes"] for each in json.loads(out)] == [["credits"], ["credits", "escrow"]]


def test_a_wallet_with_too_little_in_the_contract_is_shown_how_to_pay_in(shell: Shell, bob: Node) -> None:
    key = shell.key_file("Anna")
    status, printed = shell.launch("--wallet-key-file", key)
    assert (status, printed["error"]["code"]) == (6, "wallet_short")
    assert "souk escrow deposit" in printed["error"]["message"]
    status, printed = shell.launch("--wallet-key-file", key, "--rpc-url", shell.rpc_url)
    assert (status, printed["error"]["code"]) == (6, "chain_failed")
    assert "has 4 TUSD too little in the contract" in printed["error"]["message"]
    assert not EscrowHold.objects.exists()


def test_a_launch_waits_for_a_deposit_that_is_not_final_yet(
    shell: Shell, bob: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The contract has the money; the marketplace follows the chain a moment later."""
    shell.town.deposit("Anna", 4 * DOLLAR)
    monkeypatch.setattr("jobs.client.launch.time.sleep", lambda _: shell.town.follow())
    status, printed = shell.launch("--wallet-key-file", shell.key_file("Anna"), "--rpc-url", shell.rpc_url)
    assert status == 0, printed
    assert EscrowHold.objects.get().customer == shell.town.key("Anna").address


def test_the_same_submission_twice_is_one_job_with_one_hold(shell: Shell, bob: Node) -> None:
    spec = parse(JOB_FILE)
    assert is_escrow(spec)
    with Souk(shell.url, shell.key) as souk:
        quote = souk.quote(spec)
        assert quote.quote_id is not None
        signed = souk.authorize(spec, quote, read_wallet(shell.key_file()))
        made = [
            souk.submit(spec, quote.quote_id, authorization=signed, idempotency_key="once").job_id for _ in range(2)
        ]
    assert made == [quote.quote_id] * 2
    assert EscrowHold.objects.count() == Job.objects.count() == 1


def test_what_was_signed_and_not_used_is_given_up_on_the_chain(shell: Shell, bob: Node) -> None:
    """The server never got it, or says so: what Alice signed can no longer be used against her."""
    spec = parse(JOB_FILE)
    with Souk(shell.url, shell.key) as souk:
        quote = souk.quote(spec)
        signed = souk.authorize(spec, quote, read_wallet(shell.key_file()))
    where = ["--contract", shell.town.contract.address, "--rpc-url", shell.rpc_url]
    words = ["escrow", "give-up", quote.quote_id, *where, "--yes", "--json", "--wallet-key-file"]
    status, out, _ = shell.run(*words, shell.key_file("Mallory"))
    assert (status, "It was signed by" in out) == (2, True)
    assert shell.run(*words, shell.key_file())[0] == 0
    authorization = signed.authorization
    assert shell.town.view("nonceUsed", authorization.customer, authorization.nonce) is True
    status, out, _ = shell.run(*words, shell.key_file())
    assert (status, "used or cancelled already" in out) == (6, True)


def test_a_marketplace_that_swaps_the_contract_gets_nothing_signed(shell: Shell, bob: Node) -> None:
    one = {"chain_id": 31337, "contract": "0x" + "77" * 20, "token": shell.town.token, "scale": 6}
    known = {shell.url: {"TUSD": one}}
    file = shell.folder / "config" / "souk" / "contracts.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"servers": known}))
    status, printed = shell.launch("--wallet-key-file", shell.key_file())
    assert status == 2
    assert "until now it was 0x7777" in printed["error"]["message"]
    assert not Job.objects.exists()


def signatures(shell: Shell) -> list[str]:
    """The jobs that something was signed for at this computer."""
    return [file.stem for file in (shell.folder / "config" / "souk" / "holds").glob("*.json")]


def test_a_quote_that_is_over_is_not_signed(shell: Shell, bob: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody thought for long, sent files for long, or has a wrong clock."""
    monkeypatch.setattr("jobs.client.launch.QUOTE_MARGIN", timedelta(days=1))
    status, printed = shell.launch("--wallet-key-file", shell.key_file())
    assert (status, printed["error"]["code"]) == (2, "usage")
    assert "nothing was signed" in printed["error"]["message"]
    assert "This computer's clock says 20" in printed["error"]["message"]
    assert not signatures(shell) and not Job.objects.exists()


def test_files_that_do_not_arrive_leave_no_signature(shell: Shell, bob: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    (shell.folder / "train.py").write_text("print()")
    file = shell.job_file(JOB_FILE.replace("command", "files: [train.py]\ncommand"))

    def fail(*given: Any, **more: Any) -> None:
        raise TransferFailed("train.py did not arrive.")

    monkeypatch.setattr("jobs.client.launch.upload_files", fail)
    status, out, _ = shell.run("launch", file, "--yes", "--json", "--wallet-key-file", shell.key_file())
    assert (status, json.loads(out)["error"]["message"]) == (12, "train.py did not arrive.")
    assert not signatures(shell)


def test_a_submit_that_is_refused_says_how_to_revoke_the_signature(shell: Shell, bob: Node) -> None:
    status, printed = shell.launch("--wallet-key-file", shell.key_file("Anna"))
    [job_id] = signatures(shell)
    assert (status, printed["error"]["code"], printed["error"]["details"]["job_id"]) == (6, "wallet_short", job_id)
    assert f"for at most 4 TUSD, and the marketplace may have that. `souk show {job_id}`" in printed["error"]["message"]
    words = printed["error"]["message"].split("`")[-2].replace("FILE", str(shell.key_file("Anna"))).split()[1:]
    assert shell.run(*words, "--rpc-url", shell.rpc_url, "--yes")[0] == 0


@pytest.mark.parametrize(
    ("end", "code"), [(KeyboardInterrupt(), "interrupted"), (ServerUnreachable("It is gone."), "unreachable")]
)
def test_a_submit_whose_answer_is_lost_names_the_job(
    shell: Shell, alice: Organisation, bob: Node, monkeypatch: pytest.MonkeyPatch, end: BaseException, code: str
) -> None:
    submit = Souk.submit

    def lose(*given: Any, **more: Any) -> None:
        submit(*given, **more)
        raise end

    with monkeypatch.context() as patch:
        patch.setattr(Souk, "submit", lose)
        status, printed = shell.launch("--wallet-key-file", shell.key_file())
    [job_id] = signatures(shell)
    assert (status, printed["error"]["code"]) == ({"interrupted": 130, "unreachable": 5}[code], code)
    assert printed["error"]["details"]["job_id"] == job_id and f"`souk show {job_id}`" in printed["error"]["message"]
    assert shell.run("show", job_id)[0] == 0
    assert EscrowHold.objects.count() == Job.objects.count() == 1
