"""Protocol messages in and out of REST views: pydantic at this edge, because the agent uses the same classes."""

from __future__ import annotations

from typing import TypeVar

from rest_framework.request import Request
from rest_framework.response import Response

from marketplace.foundation.parsers import read_message
from provider_agent.protocol import Message

M = TypeVar("M", bound=Message)


def read(request: Request, message: type[M]) -> M:
    """The request's body as a message; raises what the API answers with 400."""
    return read_message(message, request.body)


def answer(message: Message, *, status: int = 200) -> Response:
    """A message as an answer."""
    return Response(message.model_dump(mode="json"), status=status)
