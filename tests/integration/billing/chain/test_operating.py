"""The operator's verbs of the contract's roles: sent once by our key, or printed for a multisig."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from billing.account_kinds import AccountKind
from billing.chain import escrow, operating, stakes
from billing.chain.contract import deploy
from billing.chain.devchain.chain import DEVELOPMENT_KEYS
from billing.chain.errors import CallReverted, SignerMissing, TriedTooOften
from billing.chain.keys import Role, key_for
from billing.chain.reading import builds
from billing.chain_following import waiting
from billing.contesting.offences import Victim
from billing.models import Alert, ChainTransaction, EscrowLease, StakeSlash
from billing.models.ledger import USD_ASSET_ID
from billing.states.chain import TransactionState
from marketplace.accounts.models import User
from marketplace.config.commands.chain import app
from marketplace.foundation.errors import OutboxConflict
from provider_agent.protocol import id_bytes32
from tests.integration.billing.chain.escrows import delegate, open_job, receipt_of
from tests.integration.billing.chain.operator_shell import RUNNER, souk
from tests.integration.billing.chain.staking import be_paid_to, fine, settle_down, stake, staked, terms_of
from tests.integration.billing.chain.town import TOKEN, Town, devchain_town
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, race

CALLS = ["resolve", "veto", "pause", "slash", "compensate", "sweep-surplus", "disputes"]
APPOINTMENTS = ["propose-role", "grant-role", "veto-role", "revoke-role", "reopen-hold"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.0)
    settings.SOUK_TOKEN_PRICES = {"TUSD": "2.00"}


@pytest.mark.urls("tests.integration.billing.urls")
def test_a_challenge_is_shown_with_its_evidence_and_decided_once(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    client.force_login(User.objects.create_superuser("operator@example.org"))
    terms_of(monkeypatch, challenge_seconds=3600)
    with devchain_town(settings) as town:
        town.deposit("Alice", 20 * TOKEN)
        delegate(town)
        job_id, lease_id = open_job(town), uuid4()
        escrow.settle_lease(receipt_of(town, job_id, lease_id, 1, 50_000))
        town.follow(2)
        assert souk("disputes") == []
        refused = RUNNER.invoke(app, ["resolve", str(lease_id), "--to-provider", "0.4"])
        assert refused.exit_code == 1 and "is not challenged" in refused.output
        town.call("Alice", "challenge", id_bytes32(lease_id), b"\x05" * 32)
        town.follow()
        # What a later receipt adds joins the dispute: it is still one.
        escrow.settle_lease(receipt_of(town, job_id, lease_id, 2, 100_000))
        town.follow(2)
        assert EscrowLease.objects.get(pk=lease_id).is_challenged

        [case] = souk("disputes")
        assert case == souk("resolve", str(lease_id))
        assert (case["evidence_hash"], case["waits_base_units"]) == ("0x" + "05" * 32, "1000000")
        assert (case["customer"], case["provider"]) == (town.key("Alice").address, town.key("Bob").address)
        shown = RUNNER.invoke(app, ["disputes"]).output
        assert "0x" + "05" * 32 in shown and str(lease_id) in shown
        page = client.get(f"/admin/billing/escrowlease/{lease_id}/change/").content.decode()
        assert "0x" + "05" * 32 in page and f"souk chain resolve {lease_id} --to-provider" in page
        too_much = RUNNER.invoke(app, ["resolve", str(lease_id), "--to-provider", "1.000001"])
        assert too_much.exit_code == 1 and "more than" in too_much.output
        assert RUNNER.invoke(app, ["resolve", str(lease_id), "--to-provider", "-1"]).exit_code != 0

        printed = souk("resolve", str(lease_id), "--to-provider", "0.4", "--print")
        assert printed["data"] == builds.encode(
            builds.ESCROW, "resolve", [town.key("Alice").address, id_bytes32(lease_id), 400_000, 600_000]
        )
        assert not ChainTransaction.objects.filter(purpose="resolve").exists()
        done = souk("resolve", str(lease_id), "--to-provider", "0.4")
        assert done["state"] in {"mined", "final"} and done["transaction"].startswith("0x")
        town.follow(2)
        lease = EscrowLease.objects.get(pk=lease_id)
        assert (lease.paid, lease.fee, lease.refunded, lease.is_challenged) == (360_000, 40_000, 600_000, False)
        assert RUNNER.invoke(app, ["resolve", str(lease_id), "--to-provider", "1"]).exit_code == 1
        assert ChainTransaction.objects.filter(purpose="resolve").count() == 1
        town.assert_books_match()
        assert_ledger_is_true()


def test_two_arbiters_who_decide_at_once_decide_one_thing(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms_of(monkeypatch, challenge_seconds=3600)
    with devchain_town(settings) as town:
        town.deposit("Alice", 20 * TOKEN)
        delegate(town)
        job_id, lease_id = open_job(town), uuid4()
        escrow.settle_lease(receipt_of(town, job_id, lease_id, 1, 100_000))
        town.follow(2)
        town.call("Alice", "challenge", id_bytes32(lease_id), b"\x05" * 32)
        town.follow()
        lease = EscrowLease.objects.select_related("hold__contract").get(pk=lease_id)
        first = operating.submit(operating.resolve(lease, to_provider=1))
        assert operating.submit(operating.resolve(lease, to_provider=1)) == first
        with pytest.raises(OutboxConflict):
            operating.submit(operating.resolve(lease, to_provider=2))


def test_pausing_is_sent_once_and_may_be_done_again(town: Town) -> None:
    for _ in range(2):
        assert souk("pause", "TUSD")["function"] == "pause"
        assert town.view("paused")
        again = RUNNER.invoke(app, ["pause", "TUSD"])
        assert again.exit_code == 1 and "paused already" in again.output
        town.follow()
        souk("unpause", "TUSD")
        assert not town.view("paused")
        town.follow()
    keys = (
        ChainTransaction.objects.filter(purpose="pause").order_by("created_at").values_list("business_key", flat=True)
    )
    assert list(keys) == [f"pause:{town.asset_id}", f"pause:{town.asset_id}#2"]
    none = RUNNER.invoke(app, ["pause", "NONE"])
    assert none.exit_code == 1 and "no escrow contract for NONE" in none.output


def test_a_root_is_vetoed_by_its_name_and_no_other(db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    terms_of(monkeypatch, root_delay_seconds=3600)
    with devchain_town(settings) as town:
        town.buy_credits("Alice", uuid4(), 5 * TOKEN)
        town.wallets["thief"] = key_for(Role.PUBLISHER)
        town.call("thief", "proposeRoot", b"\x66" * 32, 5 * TOKEN)
        town.follow()
        assert Alert.objects.open().filter(kind="chain_root").exists()
        wrong = RUNNER.invoke(app, ["veto", "TUSD", "0x" + "67" * 32])
        assert wrong.exit_code == 1 and "66" * 32 in wrong.output
        souk("veto", "TUSD", "0x" + "66" * 32)
        town.follow()
        assert not any(town.view("proposedRoot")[0])
        assert not Alert.objects.open().filter(kind="chain_root").exists()


def test_where_a_multisig_has_the_role_the_call_is_printed(town: Town, settings: Any) -> None:
    """The key that is configured has no role in the contract: the role is read from the contract."""
    settings.SOUK_CHAIN_PAUSER_KEY = "0x" + "77" * 32
    printed = souk("pause", "TUSD")
    assert (printed["to"], printed["data"]) == (town.contract.address, builds.encode(builds.ESCROW, "pause", []))
    assert "no key for pauser" in printed["why_not_sent"]
    text = RUNNER.invoke(app, ["pause", "TUSD"]).output
    assert "Nothing was sent" in text and printed["data"] in text
    assert not ChainTransaction.objects.exists() and not town.view("paused")
    with pytest.raises(SignerMissing):
        operating.submit(operating.pause(town.contract))


def test_surplus_is_swept_by_the_admin_and_never_what_is_owed(town: Town, settings: Any) -> None:
    town.deposit("Alice", 5 * TOKEN)
    settings.SOUK_CHAIN_ADMIN_KEY = DEVELOPMENT_KEYS[3]
    bob = town.key("Bob").address
    nothing = RUNNER.invoke(app, ["sweep-surplus", "TUSD", "--to", bob])
    assert nothing.exit_code == 1 and "ZeroAmount" in nothing.output
    town.mint("Mallory", TOKEN)
    gift = builds.encode(builds.DEV_TOKEN, "transfer", [town.contract.address, TOKEN])
    deploy.send(town.client, town.key("Mallory"), data=gift, to=town.token, purpose="transfer")
    souk("sweep-surplus", "TUSD", "--to", bob)
    assert town.tokens_of(bob) == TOKEN
    town.follow(2)
    town.assert_books_match()
    assert RUNNER.invoke(app, ["sweep-surplus", "TUSD", "--to", bob[:-1]]).exit_code == 1


def test_slash_and_compensate_by_hand_once(town: Town) -> None:
    alice, bob = uuid4(), uuid4()
    be_paid_to(town, bob)
    stake(town, 10 * TOKEN)
    unknown = RUNNER.invoke(app, ["slash", str(uuid4())])
    assert unknown.exit_code == 1 and "No stake is to be slashed" in unknown.output
    offence = fine(bob, 4 * DOLLAR, USD_ASSET_ID, victim=Victim(alice, uuid4(), uuid4()))
    assert souk("slash", str(offence.pk), "--print")["function"] == "slash"
    early = RUNNER.invoke(app, ["compensate", str(offence.pk), "--to", town.key("Alice").address])
    assert early.exit_code == 1 and "Nothing of the slash" in early.output
    souk("slash", str(offence.pk))
    settle_down(town)
    again = RUNNER.invoke(app, ["slash", str(offence.pk)])
    assert again.exit_code == 1 and "is slashed" in again.output
    assert "not known" in RUNNER.invoke(app, ["compensate", str(offence.pk)]).output
    souk("compensate", str(offence.pk), "--to", town.key("Alice").address)
    row = StakeSlash.objects.select_related("contract").get()
    with pytest.raises(OutboxConflict):  # before that is final another wallet gets nothing
        operating.submit(stakes.compensation_of(row, town.key("Mallory").address))
    town.follow()
    settle_down(town)
    assert (staked(town), town.owed(AccountKind.WALLET_AVAILABLE, "Alice")) == (8 * TOKEN, 2 * TOKEN)
    assert StakeSlash.objects.get().state == "compensated"
    assert RUNNER.invoke(app, ["compensate", str(offence.pk), "--to", town.key("Mallory").address]).exit_code == 1
    assert ChainTransaction.objects.filter(purpose__in=["slash", "compensate"]).count() == 2
    town.assert_books_match()


def test_a_call_that_failed_may_be_made_again_and_not_for_ever(town: Town) -> None:
    call = operating.unpause(town.contract)
    with pytest.raises(CallReverted, match="ExpectedPause"):
        operating.submit(call)
    assert not ChainTransaction.objects.exists()
    operating.submit(operating.pause(town.contract))
    town.follow(2)
    one = operating.submit(call)
    ChainTransaction.objects.filter(pk=one.pk).update(state=TransactionState.REFUSED)
    assert operating.submit(call).business_key == f"unpause:{town.asset_id}#2"
    ChainTransaction.objects.filter(purpose="unpause").delete()
    for number in range(1, operating.TRIES_MAX + 1):
        key = call.business_key if number == 1 else f"{call.business_key}#{number}"
        ChainTransaction.objects.create(
            chain_id=1, signer="0x", to=call.to, data=call.data, business_key=key, purpose="unpause"
        )
        ChainTransaction.objects.filter(business_key=key).update(state=TransactionState.REFUSED)
    with pytest.raises(TriedTooOften):
        operating.submit(call)


@pytest.mark.django_db(transaction=True)
def test_many_who_pause_at_once_send_one_transaction(settings: Any) -> None:
    with devchain_town(settings) as town:
        found = race([lambda: operating.submit(operating.pause(town.contract))] * 4)
        assert len({one.pk for one in found}) == 1
        town.follow(2)
        assert town.view("paused")


def test_status_shows_how_long_each_keys_coins_last(town: Town, settings: Any) -> None:
    [row] = souk("status")
    [signer] = row["signers"]
    assert signer["address"] == key_for(Role.SETTLER).address
    assert (signer["is_low"], int(signer["coins"]) > 0, signer["transactions"] > 100) == (False, True, True)
    settings.SOUK_CHAIN_TRANSACTIONS_MIN = signer["transactions"] * 2
    assert "TOO FEW" in RUNNER.invoke(app, ["status"]).output


@pytest.mark.parametrize(
    "command", ["resolve", "veto", "pause", "slash", "compensate", "sweep-surplus", "disputes", *APPOINTMENTS]
)
def test_help_of_each_verb_needs_no_database_and_has_an_example(command: str) -> None:
    result = RUNNER.invoke(app, [command, "--help"])
    assert result.exit_code == 0 and f"souk chain {command}" in result.output


def test_roles_are_called_what_the_contract_calls_them(town: Town) -> None:
    for name in deploy.ROLES:
        assert town.view("hasRole", Role(name.lower()).id, key_for(Role.SETTLER).address)
    assert town.view("hasRole", Role.ADMIN.id, town.view("defaultAdmin"))
