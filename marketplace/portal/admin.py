"""How much users chat with models, for operators; never what they write."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet, Sum
from django.http import HttpRequest

from marketplace.foundation.admin import ReadOnlyAdmin
from marketplace.portal.chat.models import Chat


@admin.register(Chat)
class ChatAdmin(ReadOnlyAdmin):
    """Counts only: titles, prompts and messages are their user's."""

    list_display = ["id", "organisation", "endpoint", "messages_written", "tokens", "created_at", "used_at"]
    fields = ["id", "organisation", "endpoint", "messages_written", "tokens", "created_at", "used_at"]
    list_select_related = ["organisation", "endpoint"]
    search_fields = ["=id"]
    ordering = ["-used_at"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        counted = {"messages_count": Count("messages"), "tokens_sum": Sum("messages__output_tokens")}
        chats: QuerySet[Any] = super().get_queryset(request).defer("title", "system_prompt")
        annotated: QuerySet[Any] = chats.annotate(**counted)
        return annotated

    @admin.display(description="messages")
    def messages_written(self, chat: Any) -> int:
        return int(chat.messages_count)

    @admin.display(description="tokens written")
    def tokens(self, chat: Any) -> int:
        return int(chat.tokens_sum or 0)
