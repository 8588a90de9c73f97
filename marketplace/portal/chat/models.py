"""What users wrote to models and what these answered. Only its user reads it: operators do not.

Chat      one conversation with one model, with its settings
Message   what the user asked, or what the model answered
Dataset   conversations that became an input of a training
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.db.models import Q

from jobs.models import Artifact, Endpoint, Job
from marketplace.accounts.models import Organisation
from marketplace.foundation.ids import new_id

if TYPE_CHECKING:
    from uuid import UUID

TITLE_CHARACTERS_MAX = 120
TEXT_CHARACTERS_MAX = 100_000


class Chat(models.Model):
    """A conversation of one user, in the name of one organisation."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="chats")
    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="+")
    endpoint = models.ForeignKey(Endpoint, null=True, on_delete=models.SET_NULL, related_name="+")
    title = models.CharField(max_length=TITLE_CHARACTERS_MAX, blank=True)
    system_prompt = models.TextField(blank=True, max_length=TEXT_CHARACTERS_MAX)
    temperature = models.FloatField(default=0.7)
    tokens_max = models.PositiveIntegerField(default=512)
    created_at = models.DateTimeField(auto_now_add=True)
    used_at = models.DateTimeField(auto_now_add=True)  # of the last message

    class Meta:
        ordering = ["-used_at", "-id"]
        indexes = [models.Index(fields=["user", "organisation", "-used_at"], name="chats_of_user")]
        constraints = [
            models.CheckConstraint(
                condition=Q(temperature__gte=0, temperature__lte=2), name="chat_temperature_in_range"
            ),
            models.CheckConstraint(condition=Q(tokens_max__gte=1), name="chat_tokens_positive"),
        ]

    if TYPE_CHECKING:
        endpoint_id: UUID | None

    def __str__(self) -> str:
        return f"chat {self.id}"  # never its title: this goes into logs and the admin


class Message(models.Model):
    """A question, or an answer to the question before it. An answer without `ended_at` is still being written."""

    class Role(models.TextChoices):
        USER = "user"
        ASSISTANT = "assistant"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    chat = models.ForeignKey(Chat, on_delete=models.CASCADE, related_name="messages")
    number = models.PositiveIntegerField()  # within its chat, from 1
    role = models.CharField(max_length=16, choices=Role.choices)
    text = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    # Of answers only:
    model = models.CharField(max_length=200, blank=True)  # by which the caller named it
    error = models.CharField(max_length=500, blank=True)  # a sentence for the user
    note = models.CharField(max_length=200, blank=True)  # what is happening, until the first token
    input_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    output_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    cost_usd_micros = models.PositiveBigIntegerField(null=True, blank=True)
    is_charged = models.BooleanField(default=False)  # by another organisation, whose model it is
    request_id = models.UUIDField(null=True, blank=True)  # of the gateway, under which its use is booked
    is_left_out = models.BooleanField(default=False)  # a bad answer: no dataset holds it
    stop_asked_at = models.DateTimeField(null=True, blank=True)
    heard_at = models.DateTimeField(null=True, blank=True)  # when the process that writes it was alive last
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["chat", "number"]
        constraints = [
            models.UniqueConstraint(fields=["chat", "number"], name="chat_messages_are_numbered"),
            models.UniqueConstraint(
                fields=["chat"], condition=Q(role="assistant", ended_at=None), name="one_answer_at_a_time"
            ),
            models.CheckConstraint(condition=Q(role__in=["user", "assistant"]), name="message_role_known"),
        ]

    def __str__(self) -> str:
        return f"message {self.number} of {self.chat_id}"

    @property
    def is_answer(self) -> bool:
        """The model wrote it."""
        return self.role == self.Role.ASSISTANT

    @property
    def was_stopped(self) -> bool:
        """Its user had enough of it."""
        return self.ended_at is not None and self.stop_asked_at is not None and not self.error


class Dataset(models.Model):
    """Conversations as files of the user's organisation, and the job file that trains on them."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="+")
    artifact = models.ForeignKey(Artifact, null=True, on_delete=models.SET_NULL, related_name="+")
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    conversations = models.PositiveIntegerField()
    answers = models.PositiveIntegerField()
    job_file = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"dataset {self.id}"
