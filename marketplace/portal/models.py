"""What the portal's pages keep."""

from marketplace.portal.chat.models import Chat, Dataset, Message

__all__ = ["Chat", "Dataset", "Message"]
