"""Providers, and the tokens with which their nodes enrol."""

from __future__ import annotations

from django.db import models

from marketplace.accounts.models import Organisation
from marketplace.foundation.ids import new_id


class Provider(models.Model):
    """An organisation's selling side."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.OneToOneField(Organisation, on_delete=models.PROTECT, related_name="provider")
    display_name = models.CharField(max_length=120)
    contact_email = models.EmailField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.display_name


class EnrolmentToken(models.Model):
    """Lets one node enrol, once, within the hour. Only its hash is kept."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    provider = models.ForeignKey(Provider, on_delete=models.CASCADE, related_name="enrolment_tokens")
    prefix = models.CharField(max_length=12)
    token_hash = models.CharField(max_length=64, unique=True)
    note = models.CharField(max_length=120, blank=True)
    created_by = models.CharField(max_length=120)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    node = models.OneToOneField("Node", null=True, blank=True, on_delete=models.SET_NULL, related_name="token")

    def __str__(self) -> str:
        return f"{self.prefix}... of {self.provider}"
