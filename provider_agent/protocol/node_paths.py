"""Takes a node's own paths out of what its agent reports: a customer learns nothing of the provider's file system.

The agent does so before it reports, knowing its own folders; the server does so again, because an agent may be old.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from provider_agent.protocol.outcomes import Reason

HIDDEN: Final = "[a path on the node]"
PROGRAMS_OWN: Final = frozenset({Reason.EXIT_NONZERO, Reason.BAD_CONFIG, Reason.BAD_INPUT, Reason.OUT_OF_MEMORY})
AGENT_FOLDER: Final = "/souk-agent"  # stands for each of its folders
SEEN_BY_PROGRAMS: Final = ("/souk", "/souk-lent", "/dev", "/tmp")  # noqa: S108 - what a container finds on every node

# An absolute path: not the middle of another word, of a URL or of an image's name.
_PATH: Final = re.compile(r"(?<![\w/.~-])/(?!/)[^\s'\"`<>|,;:()\[\]{}]+")
_LEASE: Final = re.compile(
    r"/leases/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:/(?:disk/)?work(?:/(.*)|$))?", re.DOTALL
)
_AGENT: Final = re.compile(r"souk-agent|/\.souk\b")


def without_node_paths(message: str, reason: Reason | None, *, own: Sequence[str] = ()) -> str:
    """The message with each path of the node hidden, and paths in a lease's work folder relative to it.

    `own`: folders of the agent, wherever they are. The words of the customer's program (PROGRAMS_OWN) keep other
    paths: they are those that it sees.
    """
    for folder in sorted(own, key=len, reverse=True):
        if folder.count("/") > 1:  # "/" and "/usr" would be found in everything
            message = message.replace(folder, AGENT_FOLDER)
    return _PATH.sub(lambda found: _hide(found[0], keeps_others=reason in PROGRAMS_OWN), message)


def _hide(path: str, *, keeps_others: bool) -> str:
    if lease := _LEASE.search(path):
        return lease[1] or HIDDEN
    is_seen = any(path == root or path.startswith(f"{root}/") for root in SEEN_BY_PROGRAMS)
    if is_seen or (keeps_others and not _AGENT.search(path)):
        return path
    return HIDDEN
