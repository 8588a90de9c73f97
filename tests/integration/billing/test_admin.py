"""The operator sees everything, changes nothing, and can enter a deposit once."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.test import Client

from billing.books.hash_chain import chain_transfers
from billing.charging import holds, metering, settlement
from billing.charging.settlement import LeaseCharge
from billing.models import Account, Deposit, PromoCode, PromotionGrant, SolvencyChunk, SpendLimit, TokenPrice
from billing.solvency.publishing import publish
from marketplace.accounts.models import Organisation, User
from tests.integration.billing.scenes import DOLLAR, Meter, assert_ledger_is_true, available, fund

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.integration.billing.urls")]
ADDABLE = {Deposit, PromoCode, PromotionGrant, SpendLimit, TokenPrice}
MODELS = list(apps.get_app_config("billing").get_models())


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("operator@example.org"))
    return client


@pytest.fixture
def alice() -> UUID:
    return fund(Organisation.objects.create(name="Alice").id)


@pytest.fixture
def history(alice: UUID) -> None:
    """A row in most tables."""
    meter = Meter()
    metering.accept_receipts(meter.terms, [meter.read(1000)], observed_ms=1000)
    holds.place_hold(owner_id=alice, job_id=meter.job_id, amount=DOLLAR)
    settlement.settle_job(job_id=meter.job_id, charges=[LeaseCharge(meter.lease_id, uuid4(), 1000)], fee_bps=1000)
    chain_transfers()


def url(model: str, page: str) -> str:
    return f"/admin/billing/{model}/{page}"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.model_name)
def test_every_model_is_shown_and_can_be_neither_changed_nor_deleted(
    operator: Client, history: None, model: type
) -> None:
    assert admin.site.is_registered(model)
    name = model._meta.model_name  # type: ignore[attr-defined]
    assert operator.get(url(name, "")).status_code == 200
    row = model._default_manager.first()  # type: ignore[attr-defined]
    if row is not None:
        assert operator.get(url(name, f"{row.pk}/change/")).status_code == 200
        assert operator.post(url(name, f"{row.pk}/change/"), {}).status_code == 403
        assert operator.post(url(name, f"{row.pk}/delete/"), {"post": "yes"}).status_code == 403
    assert operator.get(url(name, "add/")).status_code == (200 if model in ADDABLE else 403)
    assert_ledger_is_true()


def test_searching_accounts_and_transfers_by_owner_and_job_works(operator: Client, alice: UUID) -> None:
    assert str(alice) in operator.get(url("account", f"?q={alice}")).content.decode()
    assert operator.get(url("transfer", f"?q={uuid4()}")).status_code == 200


def test_the_operator_credits_a_customer(operator: Client, alice: UUID) -> None:
    form = {"organisation": str(alice), "amount": "2.50", "reference": "wire 1"}
    assert operator.post(url("deposit", "add/"), form).status_code == 302
    assert available(alice) == 12_500_000
    deposit = Deposit.objects.get(reference="wire 1")
    assert (deposit.actor, deposit.amount) == ("operator@example.org", 2_500_000)

    repeated = operator.post(url("deposit", "add/"), form)
    assert "This reference was used" in repeated.content.decode()
    assert available(alice) == 12_500_000
    assert_ledger_is_true()


@pytest.mark.parametrize("amount", ["0", "-1", "1.2345678", "lots", ""])
def test_a_deposit_of_no_amount_is_explained(operator: Client, alice: UUID, amount: str) -> None:
    form = {"organisation": str(alice), "amount": amount, "reference": "wire 1"}
    assert operator.post(url("deposit", "add/"), form).status_code == 200
    assert available(alice) == 10 * DOLLAR


def test_who_may_only_look_cannot_credit_or_freeze(client: Client, alice: UUID) -> None:
    auditor = User.objects.create_user("auditor@example.org", is_staff=True)
    may_view = Permission.objects.filter(content_type__app_label="billing", codename__startswith="view")
    auditor.user_permissions.set(may_view)
    client.force_login(auditor)
    assert client.get(url("account", "")).status_code == 200
    form = {"organisation": str(alice), "amount": "1", "reference": "x"}
    assert client.post(url("deposit", "add/"), form).status_code == 403
    chosen = {"action": "freeze", "_selected_action": [str(row.pk) for row in Account.objects.all()]}
    client.post(url("account", ""), chosen)
    assert not Account.objects.filter(is_frozen=True).exists()
    assert available(alice) == 10 * DOLLAR


def test_the_operator_freezes_and_unfreezes_an_account(operator: Client, alice: UUID) -> None:
    account = Account.objects.get(owner_id=alice)
    for action, is_frozen in (("freeze", True), ("unfreeze", False)):
        operator.post(url("account", ""), {"action": action, "_selected_action": [str(account.pk)]})
        account.refresh_from_db()
        assert account.is_frozen is is_frozen


def test_a_solvency_report_is_shown_without_its_secret(operator: Client, alice: UUID) -> None:
    chain_transfers()
    report = publish()
    assert report is not None
    page = operator.get(url("solvencyreport", f"{report.pk}/change/")).content.decode()
    assert report.commitment in page and "secret" not in page.lower()
    chunk = SolvencyChunk.objects.filter(report=report).first()
    assert chunk is not None
    assert "leaves" not in operator.get(url("solvencychunk", f"{chunk.pk}/change/")).content.decode().lower()
