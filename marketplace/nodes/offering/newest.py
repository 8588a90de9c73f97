"""Of the changes of a node's standing the newest counts, in whatever order they arrive.

A node signs a request with its time, and who captured one may send it again as long as that is fresh. So each change
takes the node's signed time with it: one that was signed before the last change, or with it, is refused. A person's
change is of the server's time, so that no request which the node signed before undoes it either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest

from marketplace.foundation import clock
from marketplace.nodes.errors import RequestOutdated
from marketplace.nodes.models import Node


@contextmanager
def change_by_node(node: Node, *, signed_ms: int) -> Iterator[None]:
    """Around a change that the node signed at `signed_ms`; raises RequestOutdated where a newer one was accepted."""
    with transaction.atomic():
        if not Node.objects.filter(pk=node.pk, changed_ms__lt=signed_ms).update(changed_ms=signed_ms):
            raise RequestOutdated()
        yield


@contextmanager
def change_by_person(node: Node) -> Iterator[None]:
    """Around a change that a person makes; what the node signed before it no longer counts."""
    with transaction.atomic():
        now_ms = int(clock.now().timestamp() * 1000)
        Node.objects.filter(pk=node.pk).update(changed_ms=Greatest(F("changed_ms"), now_ms))
        yield
