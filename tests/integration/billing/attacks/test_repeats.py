"""What is sent twice happens once, and what is sent without end reaches a limit."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from django.core.exceptions import ValidationError
from django.test import Client

from billing.account_kinds import AccountKind
from billing.books import deposits
from billing.books.chart_of_accounts import open_account
from billing.books.exchange import exchange
from billing.charging import metering
from billing.errors import Equivocation, InsufficientFunds, QuoteConflict
from billing.models import Account, ReceiptEvidence, Transfer
from billing.models.ledger import Account as AccountModel
from marketplace.accounts.models import User
from tests.integration.billing.exchanging import TOKEN, give_tokens, quote, token  # noqa: F401 - a fixture
from tests.integration.billing.scenes import Meter, assert_ledger_is_true, available

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("op@example.org", "a long password"))
    return client


def test_a_repeated_exchange_of_all_that_there_was_returns_the_first() -> None:
    alice, once = give_tokens(uuid4(), 10**18), quote()
    first = exchange(owner_id=alice, sold=10**18, quote=once)
    again = exchange(owner_id=alice, sold=10**18, quote=once)
    assert [each.pk for each in again] == [each.pk for each in first] and Transfer.objects.count() == 1 + len(first)
    with pytest.raises(QuoteConflict):
        exchange(owner_id=alice, sold=10**17, quote=once)
    with pytest.raises(InsufficientFunds):
        exchange(owner_id=alice, sold=10**18, quote=quote())
    assert available(alice) == 2_000_000
    assert_ledger_is_true()


def test_who_signs_lies_without_end_does_not_fill_the_database() -> None:
    meter = Meter()
    accepted = meter.read(1000)
    metering.accept_receipts(meter.terms, [accepted], observed_ms=10_000)
    meter.made.clear()
    for billable_ms in range(2000, 2030):
        with pytest.raises(Equivocation):
            metering.accept_receipts(meter.terms, [meter.sign(billable_ms)], observed_ms=10_000)
    assert ReceiptEvidence.objects.count() == metering.EVIDENCE_PER_LEASE_MAX


@pytest.mark.parametrize("text", ["1e96", "1e100000", "1e999999999", "9" * 97, "Infinity", "NaN", "1e-1", "", "０x1"])
def test_a_number_that_no_account_holds_is_refused_before_it_is_counted(text: str) -> None:
    with pytest.raises(ValidationError):
        AccountModel._meta.get_field("debits_posted").to_python(text)


def test_the_operator_sees_tokens_as_tokens(operator: Client) -> None:
    give_tokens(uuid4(), 15 * 10**17)
    for page in ("account", "deposit"):
        shown = operator.get(f"/admin/billing/{page}/").content.decode()
        assert "1.5 TOK" in shown and "$1500000000000" not in shown


def test_the_operator_cannot_freeze_the_account_that_every_settlement_pays_into(operator: Client, alice: UUID) -> None:
    fees, mine = open_account(AccountKind.FEE_REVENUE), open_account(AccountKind.CUSTOMER_AVAILABLE, alice)
    chosen = {"action": "freeze", "_selected_action": [str(fees.pk), str(mine.pk)]}
    answer = operator.post("/admin/billing/account/", chosen, follow=True)
    assert "never frozen" in answer.content.decode()
    assert list(Account.objects.filter(is_frozen=True).values_list("pk", flat=True)) == [mine.pk]


def test_two_operators_who_enter_one_deposit_credit_it_once(operator: Client, alice: UUID) -> None:
    """The second one's form was checked before the first one's was saved."""
    from unittest.mock import patch

    from billing.admin.books import DepositForm
    from marketplace.accounts.models import Organisation

    organisation = Organisation.objects.create(name="A")
    deposits.credit(organisation.pk, 5_000_000, reference="wire 7", actor="other@example.org")
    form = {"organisation": str(organisation.pk), "amount": "5", "reference": "wire 7"}
    with patch.object(DepositForm, "clean_reference", lambda self: "wire 7"):
        assert operator.post("/admin/billing/deposit/add/", form).status_code == 302
        assert operator.post("/admin/billing/deposit/add/", form | {"amount": "6"}).status_code in {200, 302}
    assert available(organisation.pk) == 5_000_000
