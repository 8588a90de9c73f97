"""What can go wrong when the embedded marketplace starts; each is one sentence for the person at the terminal.

EmbeddedError
|-- DataFolderBroken     not ours, too new, unreadable, or in a place that cannot work
|-- DataFolderInUse      another `souk up` holds it
|-- PortTaken            another process listens there
`-- ChildFailed          a child did not come up; the end of its log is in `details`
"""

from __future__ import annotations


class EmbeddedError(Exception):
    """The embedded marketplace cannot start."""

    def __init__(self, message: str, *, details: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class DataFolderBroken(EmbeddedError):
    """The data folder cannot be used."""


class DataFolderInUse(EmbeddedError):
    """Another `souk up` uses the data folder."""


class PortTaken(EmbeddedError):
    """Another program listens on the port."""


class ChildFailed(EmbeddedError):
    """A child process did not come up."""
