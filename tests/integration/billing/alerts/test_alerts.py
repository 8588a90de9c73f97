"""An alert is raised once while its cause lasts, and operators learn of it."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.core import mail
from django.db import IntegrityError, transaction
from django.test import Client

from billing import dispatch
from billing.errors import AlertNotFound
from billing.models import Alert
from billing.notices import alerts
from marketplace.accounts.models import User
from tests.integration.billing.scenes import race

pytestmark = pytest.mark.django_db


def raise_one(key="reconciliation/stripe", message="Stripe has $2 less than the ledger."):
    return alerts.raise_once(key, kind="reconciliation", message=message, severity=alerts.Severity.CRITICAL)


def test_an_alert_is_raised_once_however_often_it_is_noticed():
    first = raise_one()
    again = raise_one(message="Stripe has $3 less than the ledger.")
    assert (again.pk, again.noticed) == (first.pk, 2)
    assert Alert.objects.get().message == "Stripe has $3 less than the ledger."


def test_a_closed_alert_is_history_and_the_next_one_is_new():
    first = raise_one()
    assert alerts.close("reconciliation/stripe")
    assert not alerts.close("reconciliation/stripe")
    assert raise_one().pk != first.pk
    assert Alert.objects.count() == 2


def test_the_database_keeps_one_open_alert_per_key():
    raise_one()
    with pytest.raises(IntegrityError, match="one_open_alert_per_key"), transaction.atomic():
        Alert.objects.create(key="reconciliation/stripe", kind="x", severity="info", message="again")


def test_an_unknown_severity_is_refused():
    with pytest.raises(ValueError, match="loud"):
        alerts.raise_once("k", kind="k", message="m", severity="loud")


def test_the_first_who_acknowledges_is_noted():
    alert = raise_one()
    alerts.acknowledge(alert.pk, actor="alice@example.org")
    alerts.acknowledge(alert.pk, actor="bob@example.org")
    alert.refresh_from_db()
    assert alert.acknowledged_by == "alice@example.org" and alert.closed_at is None
    with pytest.raises(AlertNotFound):
        alerts.acknowledge(uuid4(), actor="alice@example.org")


def test_operators_get_one_mail_per_alert_where_an_address_is_set(settings):
    settings.SOUK_ALERT_EMAILS = ["operator@example.org"]
    alert = raise_one()
    raise_one()
    assert dispatch.dispatch_due() == 1
    [message] = mail.outbox
    assert message.to == ["operator@example.org"] and "critical" in message.subject
    assert str(alert.pk) in message.body and "Stripe has" in message.body


def test_no_mail_is_written_where_no_address_is_set():
    raise_one()
    assert dispatch.dispatch_due() == 0
    assert mail.outbox == []


def test_the_gauge_counts_open_alerts_and_falls_back_to_zero(client):
    raise_one()
    assert 'souk_alerts_open{kind="reconciliation"} 1.0' in client.get("/metrics").content.decode()
    alerts.close("reconciliation/stripe")
    assert 'souk_alerts_open{kind="reconciliation"} 0.0' in client.get("/metrics").content.decode()


def test_an_operator_acknowledges_and_closes_in_the_admin():
    alert = raise_one()
    operator = User.objects.create_superuser("op@example.org", "correct horse battery")
    page = Client()
    page.force_login(operator)
    assert "Stripe has" in page.get("/admin/billing/alert/").content.decode()
    for action in ("acknowledge", "close"):
        done = page.post("/admin/billing/alert/", {"action": action, "_selected_action": [str(alert.pk)]})
        assert done.status_code == 302
    alert.refresh_from_db()
    assert alert.acknowledged_by == "op@example.org" and alert.closed_at is not None


@pytest.mark.django_db(transaction=True)
def test_many_who_notice_at_once_open_one_alert():
    found = race([raise_one] * 8)
    assert len({alert.pk for alert in found}) == 1
    assert Alert.objects.get().noticed == 8
