"""Everything that ends a replica with a message. No torch here: a bad configuration is refused before torch is loaded.

ServeError                70   a fault of the runtime or of its engine
|-- BadConfig             64   the configuration has mistakes; all of them are in `mistakes`
|-- BadModel              65   the model's folder cannot be served
|-- OutOfMemory           77   the devices' memory is too small for this model
`-- Stopped               75   SIGTERM was honoured: what was being answered was answered
"""

from __future__ import annotations

from runtimes.contract import ExitCode


class ServeError(Exception):
    """The replica failed."""

    exit_code = ExitCode.INTERNAL


class BadConfig(ServeError):
    """The configuration has mistakes."""

    exit_code = ExitCode.BAD_CONFIG

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        super().__init__(f"the configuration has {count}: " + "; ".join(mistakes))


class BadModel(ServeError):
    """The model cannot be served."""

    exit_code = ExitCode.BAD_DATA


class OutOfMemory(ServeError):
    """The devices' memory is too small for this model."""

    exit_code = ExitCode.OUT_OF_MEMORY


class Stopped(ServeError):
    """A signal stopped the replica."""

    exit_code = ExitCode.STOPPED
