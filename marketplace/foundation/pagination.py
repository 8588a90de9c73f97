"""How lists are paged: by cursor, newest first, so that a page does not shift while rows arrive."""

from __future__ import annotations

from datetime import datetime, timedelta

from rest_framework.exceptions import NotFound
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request

from marketplace.foundation.errors import BadRequest
from provider_agent.protocol import MOMENT_FIRST, MOMENT_LAST

_BAD_CURSOR = "?cursor= is not one of this list. Take the whole address of `next` or `previous` from a page of it."


class NewestFirst(CursorPagination):
    """`?cursor=...&page_size=...`; at most 200 rows a page. By a moment, unless `is_position` says otherwise."""

    ordering = "-created_at"
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200

    def decode_cursor(self, request: Request) -> Cursor | None:
        """Raises BadRequest for a cursor that was altered: its position would reach the database as it is."""
        try:
            cursor: Cursor | None = super().decode_cursor(request)
        except NotFound as error:
            raise BadRequest(_BAD_CURSOR) from error
        if cursor is not None and cursor.position is not None and not self.is_position(str(cursor.position)):
            raise BadRequest(_BAD_CURSOR)
        return cursor

    @staticmethod
    def is_position(text: str) -> bool:
        """Whether this may be the value of `ordering` in a row."""
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return False
        # Pages name moments of UTC; PostgreSQL does not read every time zone that Python does.
        return moment.utcoffset() == timedelta(0) and MOMENT_FIRST <= moment <= MOMENT_LAST
