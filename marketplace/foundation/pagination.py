"""How lists are paged: by cursor, newest first, so that a page does not shift while rows arrive."""

from rest_framework.pagination import CursorPagination


class NewestFirst(CursorPagination):
    """`?cursor=...&page_size=...`; at most 200 rows a page."""

    ordering = "-created_at"
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200
