"""Alerts to the operators: raised once while their cause lasts, acknowledged by a person, closed when it is gone.

    raise_once(key, kind=..., message=...)  -> seen in the admin, counted in /metrics, sent by e-mail where one is set
    acknowledge(alert_id, actor=...)        -> somebody looks after it
    close(key)                              -> its cause is gone; the next raise opens a new one

An alert is written in the transaction around it: raise it outside of one that is going to fail.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final
from uuid import UUID

from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.db.models import Count

from billing.dispatch import handles, on_given_up
from billing.errors import AlertNotFound
from billing.models.alerts import KEY_CHARACTERS_MAX, Alert, Severity
from marketplace.foundation import clock, outbox
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.models import OutboxMessage

MAIL_KIND: Final = "billing.alert_mail"
MESSAGE_CHARACTERS_MAX: Final = 4000
SUBJECT_CHARACTERS_MAX: Final = 200
ROUNDS_MAX: Final = 3  # somebody may close it between the insert and the look

log = logging.getLogger(__name__)

__all__ = ["Severity", "acknowledge", "close", "close_all", "open_by_kind", "raise_once"]


def raise_once(
    key: str, *, kind: str, message: str, severity: Severity | str = Severity.WARNING, subject: object = ""
) -> Alert:
    """The one open alert of this key, with the newest message; e-mail goes out when it opens, not when it repeats."""
    key, now = key[:KEY_CHARACTERS_MAX], clock.now()
    text = {"message": message[:MESSAGE_CHARACTERS_MAX], "subject": str(subject)[:SUBJECT_CHARACTERS_MAX]}
    with transaction.atomic():
        for _ in range(ROUNDS_MAX):
            fresh = Alert(key=key, kind=kind, severity=Severity(severity), opened_at=now, noticed_at=now, **text)
            Alert.objects.bulk_create([fresh], ignore_conflicts=True)
            alert = Alert.objects.open().select_for_update().filter(key=key).first()
            if alert is not None:
                break
        else:
            raise StateConflict(kind="alert", id=key, to="open", state="closed again and again")
        if alert.pk == fresh.pk:
            log.warning("An alert was raised. key=%s severity=%s message=%s", key, alert.severity, alert.message)
            _mail(alert)
            return alert
        alert.message, alert.subject, alert.severity = text["message"], text["subject"], Severity(severity)
        alert.noticed, alert.noticed_at = alert.noticed + 1, now
        alert.save(update_fields=["message", "subject", "severity", "noticed", "noticed_at"])
        return alert


def close(key: str) -> bool:
    """The cause of this alert is gone; whether one was open."""
    return Alert.objects.open().filter(key=key[:KEY_CHARACTERS_MAX]).update(closed_at=clock.now()) == 1


def close_all(keys: Collection[str]) -> int:
    """As close for each of these; how many were open."""
    known = [key[:KEY_CHARACTERS_MAX] for key in keys]
    return Alert.objects.open().filter(key__in=known).update(closed_at=clock.now())


def acknowledge(alert_id: UUID, *, actor: str) -> Alert:
    """Note who looks after it, the first one only; it stays open. Raises AlertNotFound."""
    fields = {"acknowledged_at": clock.now(), "acknowledged_by": actor[:120]}
    Alert.objects.filter(pk=alert_id, acknowledged_at=None).update(**fields)
    alert = Alert.objects.filter(pk=alert_id).first()
    if alert is None:
        raise AlertNotFound(alert_id=str(alert_id))
    return alert


def open_by_kind() -> dict[str, int]:
    """Kind -> how many are open; a kind that ever had one is there with 0, so that its gauge falls back."""
    known = dict.fromkeys(Alert.objects.values_list("kind", flat=True).distinct(), 0)
    counted = Alert.objects.open().order_by().values_list("kind").annotate(Count("pk"))
    return known | dict(counted)


@on_given_up
def alert_given_up(message: OutboxMessage) -> Alert:
    """One alert a kind of call: the alert's own mail is such a call, and its failure must not cause ever more mail."""
    text = f"A call to the outside was given up for good: {message.business_key}. {message.last_error}"
    return raise_once(f"outbox:{message.kind}", kind="call_given_up", subject=message.pk, message=text)


@handles(MAIL_KIND)
def send_alert_mail(message: OutboxMessage) -> str:
    """Send one alert to the operators' addresses. After a crash it may go out twice: better than not at all."""
    alert = Alert.objects.get(pk=message.payload["alert_id"])
    body = f"{alert.message}\n\nAbout: {alert.subject or alert.kind}\nSince: {alert.opened_at:%Y-%m-%d %H:%M} UTC\n"
    body += f"{settings.SOUK_API_URL}/admin/billing/alert/{alert.pk}/\n"
    title = f"[Souk] {alert.severity}: {alert.message.splitlines()[0][:100]}"
    return str(send_mail(title, body, settings.DEFAULT_FROM_EMAIL, settings.SOUK_ALERT_EMAILS))


def _mail(alert: Alert) -> None:
    """What is only worth a look waits in the admin."""
    if settings.SOUK_ALERT_EMAILS and alert.severity != Severity.INFO:
        outbox.enqueue(MAIL_KIND, f"alert_mail/{alert.pk}", {"alert_id": str(alert.pk)})
