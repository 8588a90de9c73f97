"""Deletes a user's conversations when the user is erased."""

from __future__ import annotations

from marketplace.accounts.models import User
from marketplace.portal.chat.models import Chat, Dataset


def forget_user(user: User) -> None:
    """No chat and no dataset of theirs is left. Files that were made of them are the organisation's, and stay."""
    Chat.objects.filter(user=user).delete()
    Dataset.objects.filter(user=user).delete()
