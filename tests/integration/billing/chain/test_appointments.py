"""The contract's roles change behind its delay, and a false close is stopped: the operator's verbs for both."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.chain import escrow
from billing.chain.devchain.chain import DEVELOPMENT_KEYS
from billing.chain.keys import Role, SigningKey, key_for
from billing.chain.reading import builds
from billing.chain_following import waiting
from billing.models import Alert, ChainTransaction, EscrowHold
from billing.states.chain import EscrowHoldState
from provider_agent.protocol import ethereum, id_bytes32
from tests.integration.billing.chain.escrows import authorize, open_job
from tests.integration.billing.chain.operator_shell import refused, souk
from tests.integration.billing.chain.staking import terms_of
from tests.integration.billing.chain.town import TOKEN, Town, devchain_town

DAY = 86_400
CLOSE_SECONDS = 6 * 3_600
PAUSER_KEY = DEVELOPMENT_KEYS[2]  # another than the settler's: with one that was stolen nothing more is signed
SETTLER_DAYS = 2  # the contract's delay
WINDOW_DAYS = 14  # in which what was proposed can be granted


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch, settings: Any) -> SigningKey:
    """The operator has the admin's key at hand; every other role is that of its one key."""
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.0)
    secret = DEVELOPMENT_KEYS[3]
    settings.SOUK_CHAIN_ADMIN_KEY = secret
    return SigningKey(ethereum.address_of(secret), secret)


def command_in(alert: Alert, verb: str) -> list[str]:
    """The words after `souk chain` of the command that the alert tells the operator to type."""
    [found] = [part for part in alert.message.split("`") if part.startswith(f"souk chain {verb}")]
    return found.split()[2:]


def test_a_role_is_granted_after_the_delay_and_taken_away_at_once(town: Town) -> None:
    ben = town.key("Ben").address
    assert "propose-role` comes first" in refused("grant-role", "TUSD", "settler", ben)
    assert souk("propose-role", "TUSD", "settler", ben)["state"] in {"mined", "final"}
    town.follow()
    alert = Alert.objects.open().get(kind="chain_role")
    assert (alert.severity, alert.subject) == ("critical", ben)
    town.pass_seconds(SETTLER_DAYS * DAY - 60)
    assert "can be granted to" in refused("grant-role", "TUSD", "settler", ben)
    assert not town.view("hasRole", Role.SETTLER.id, ben)
    town.pass_seconds(120)
    assert souk("grant-role", "TUSD", "settler", ben)["function"] == "grantRole"
    assert town.view("hasRole", Role.SETTLER.id, ben)
    town.follow()
    assert not Alert.objects.open().filter(kind="chain_role").exists()
    assert f"{ben} is already settler" in refused("propose-role", "TUSD", "settler", ben)
    assert "is already settler" in refused("grant-role", "TUSD", "settler", ben)
    souk("revoke-role", "TUSD", "settler", ben)
    assert not town.view("hasRole", Role.SETTLER.id, ben)
    town.follow()
    assert "is not settler" in refused("revoke-role", "TUSD", "settler", ben)
    assert "propose-role` comes first" in refused("grant-role", "TUSD", "settler", ben)
    souk("propose-role", "TUSD", "settler", ben)  # what was done may be done again
    assert town.view("proposedRoles", Role.SETTLER.id, ben) > 0


def test_a_role_that_was_proposed_too_long_ago_is_granted_no_more(town: Town) -> None:
    ben = town.key("Ben").address
    souk("propose-role", "TUSD", "pauser", ben)
    town.pass_seconds((SETTLER_DAYS + WINDOW_DAYS) * DAY + 60)
    assert "TooLate" in refused("grant-role", "TUSD", "pauser", ben)
    assert not town.view("hasRole", Role.PAUSER.id, ben)


def test_a_role_that_a_stolen_admin_key_proposes_is_vetoed_by_the_alerts_own_command(
    town: Town, admin: SigningKey, settings: Any
) -> None:
    settings.SOUK_CHAIN_ADMIN_KEY = ""  # Mallory has it; we veto as the arbiter
    town.wallets["thief"] = admin
    her = town.key("Mallory").address
    town.call("thief", "proposeRole", Role.SETTLER.id, her)
    town.follow()
    alert = Alert.objects.open().get(kind="chain_role")
    assert her in alert.message and "settler" in alert.message
    assert souk(*command_in(alert, "veto-role"))["roles"] == ["arbiter", "pauser", "admin"]
    town.follow()
    assert not Alert.objects.open().filter(kind="chain_role").exists()
    assert town.view("proposedRoles", Role.SETTLER.id, her) == 0
    assert "is not proposed" in refused("veto-role", "TUSD", "settler", her)


def test_what_a_multisig_has_to_send_is_printed(town: Town, settings: Any) -> None:
    settings.SOUK_CHAIN_ADMIN_KEY = "0x" + "77" * 32  # a key that is not the contract's admin
    ben = town.key("Ben").address
    for verb, function, holder in (
        ("propose-role", "proposeRole", ben),
        ("revoke-role", "revokeRole", key_for(Role.SETTLER).address),
    ):
        printed = souk(verb, "TUSD", "settler", holder)
        data = builds.encode(builds.ESCROW, function, [Role.SETTLER.id, holder])
        assert (printed["to"], printed["data"]) == (town.contract.address, data)
        assert "no key for admin" in printed["why_not_sent"]
    assert not ChainTransaction.objects.exists()


def test_roles_and_wallets_that_cannot_be_are_refused_by_name(town: Town) -> None:
    ben = town.key("Ben").address
    assert "two steps" in refused("propose-role", "TUSD", "admin", ben)
    assert "settler, publisher, arbiter, slasher, pauser" in refused("veto-role", "TUSD", "owner", ben)
    assert "not an address" in refused("grant-role", "TUSD", "settler", ben[:-1])
    assert "no escrow contract for NONE" in refused("revoke-role", "NONE", "settler", ben)
    assert not ChainTransaction.objects.exists()


def test_a_close_by_a_stolen_key_is_stopped_by_the_alerts_own_commands(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms_of(monkeypatch, close_seconds=CLOSE_SECONDS)
    settings.SOUK_CHAIN_PAUSER_KEY = PAUSER_KEY
    with devchain_town(settings) as town:
        town.deposit("Alice", 20 * TOKEN)
        job_id = open_job(town)
        alice, settler = town.key("Alice").address, key_for(Role.SETTLER)
        assert "is being closed" in refused("reopen-hold", str(job_id))
        town.wallets["thief"] = settler
        town.call("thief", "closeHold", alice, id_bytes32(job_id))
        town.follow()
        alert = Alert.objects.open().get(kind="chain_closing")
        assert alert.severity == "critical" and EscrowHold.objects.get(pk=job_id).closes_at is not None
        words = [settler.address if word == "ADDRESS" else word for word in command_in(alert, "revoke-role")]
        souk(*words)
        assert souk(*command_in(alert, "reopen-hold"))["function"] == "reopenHold"
        town.follow()
        assert EscrowHold.objects.get(pk=job_id).closes_at is None
        assert not Alert.objects.open().filter(kind="chain_closing").exists()
        town.pass_seconds(CLOSE_SECONDS + 60)
        town.follow()
        assert EscrowHold.objects.get(pk=job_id).state == EscrowHoldState.OPEN
        assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 10 * TOKEN
        assert "is being closed" in refused("reopen-hold", str(job_id))
        town.assert_books_match()


def test_our_own_close_is_no_alarm_and_the_rest_goes_back_after_the_contracts_time(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms_of(monkeypatch, close_seconds=CLOSE_SECONDS)
    with devchain_town(settings) as town:
        town.deposit("Alice", 20 * TOKEN)
        job_id = open_job(town)
        escrow.end_hold(job_id)
        for _ in range(3):
            escrow.sweep(town.contract.chain_id)
            town.follow()
        hold = EscrowHold.objects.get(pk=job_id)
        assert (hold.state, hold.closes_at is None) == (EscrowHoldState.OPEN, False)
        assert not Alert.objects.filter(kind="chain_closing").exists()
        town.pass_seconds(CLOSE_SECONDS + 60)
        for _ in range(3):
            town.follow()
            escrow.sweep(town.contract.chain_id)
        town.follow(2)
        assert EscrowHold.objects.get(pk=job_id).state == EscrowHoldState.CLOSED
        assert ChainTransaction.objects.filter(purpose="refundExpired").count() == 1
        assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 20 * TOKEN
        town.assert_books_match()


def test_a_hold_that_is_not_ours_is_named_by_its_wallet(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms_of(monkeypatch, close_seconds=CLOSE_SECONDS)
    settings.SOUK_CHAIN_PAUSER_KEY = PAUSER_KEY
    with devchain_town(settings) as town:
        town.deposit("Alice", 20 * TOKEN)
        town.deposit("Mallory", 20 * TOKEN)
        job_id, her = open_job(town), town.key("Mallory").address
        hers = authorize(town, job_id, signer="Mallory", customer=her)
        town.call("Mallory", "openHold", escrow._struct(hers.authorization), hers.signature)
        town.wallets["thief"] = key_for(Role.SETTLER)
        town.call("thief", "closeHold", her, id_bytes32(job_id))
        town.follow(2)
        words = command_in(Alert.objects.open().get(kind="chain_closing"), "reopen-hold")
        assert words == ["reopen-hold", str(job_id), "--code", "TUSD", "--customer", her]
        assert "No hold of the job" in refused("reopen-hold", str(uuid4()))
        assert "--code" in refused("reopen-hold", str(job_id), "--customer", her)
        settings.SOUK_CHAIN_PAUSER_KEY = ""  # then the stolen key is the only one that may, and it signs nothing
        assert "is used elsewhere, and signs nothing" in souk(*words)["why_not_sent"]
        settings.SOUK_CHAIN_PAUSER_KEY = PAUSER_KEY
        souk(*words)
        town.follow()
        assert not Alert.objects.open().filter(kind="chain_closing").exists()


def test_a_close_by_a_stolen_key_after_the_jobs_end_is_an_alarm_too(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it used may not be settled yet, and nothing of ours is sent any more with a key that is used elsewhere."""
    terms_of(monkeypatch, close_seconds=CLOSE_SECONDS)
    with devchain_town(settings) as town:
        town.deposit("Alice", 20 * TOKEN)
        job_id = open_job(town)
        escrow.end_hold(job_id)
        town.wallets["thief"] = key_for(Role.SETTLER)
        town.call("thief", "closeHold", town.key("Alice").address, id_bytes32(job_id))
        town.follow()
        alert = Alert.objects.open().get(kind="chain_closing")
        assert command_in(alert, "reopen-hold") == ["reopen-hold", str(job_id)]


def test_a_role_that_is_granted_and_not_by_us_keeps_its_alert(town: Town, admin: SigningKey, settings: Any) -> None:
    settings.SOUK_CHAIN_ADMIN_KEY = ""
    town.wallets["thief"] = admin
    her = town.key("Mallory").address
    town.call("thief", "proposeRole", Role.PUBLISHER.id, her)
    town.follow()
    town.pass_seconds(SETTLER_DAYS * DAY + 60)
    town.call("thief", "grantRole", Role.PUBLISHER.id, her)
    town.follow()
    assert town.view("hasRole", Role.PUBLISHER.id, her)
    assert Alert.objects.open().get(kind="chain_role").subject == her


def test_a_veto_that_is_taken_away_and_a_new_admin_are_alarms(town: Town, admin: SigningKey, settings: Any) -> None:
    """Whoever has stolen the admin's key takes the vetoes away before proposing roles."""
    settings.SOUK_CHAIN_ADMIN_KEY = ""
    town.wallets["thief"] = admin
    ours, hers = key_for(Role.ARBITER).address, town.key("Mallory").address
    town.call("thief", "revokeRole", Role.ARBITER.id, ours)
    town.call("thief", "beginDefaultAdminTransfer", hers)
    town.follow()
    messages = {alert.subject: alert.message for alert in Alert.objects.open().filter(kind="chain_role")}
    assert set(messages) == {ours, hers}
    assert "arbiter" in messages[ours] and "cancelDefaultAdminTransfer" in messages[hers]
    town.call("thief", "cancelDefaultAdminTransfer")
    town.follow()
    assert Alert.objects.open().get(kind="chain_role").subject == ours
