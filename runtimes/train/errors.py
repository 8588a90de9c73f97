"""Everything that ends a training with a message. No torch here: a bad config is refused before torch is imported.

TrainError                70   a fault of the runtime
|-- BadConfig             64   the configuration has mistakes; all of them are in `mistakes`
|-- BadData               65   the data or the model folder cannot be used
|-- BadCheckpoint         76   the checkpoint cannot be resumed from
|-- OutOfMemory           77   the device's memory is too small for this configuration
|-- LostPeer              79   a connection to another rank broke, or nothing came over it
`-- Stopped               75   SIGTERM was honoured
"""

from __future__ import annotations

from runtimes.contract import ExitCode


class TrainError(Exception):
    """The training failed."""

    exit_code = ExitCode.INTERNAL


class BadConfig(TrainError):
    """The configuration has mistakes."""

    exit_code = ExitCode.BAD_CONFIG

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        super().__init__(f"the configuration has {count}: " + "; ".join(mistakes))

    def __reduce__(self) -> tuple[type[BadConfig], tuple[list[str]]]:
        """Pickled by its mistakes, so that it can cross ranks."""
        return (type(self), (self.mistakes,))


class BadData(TrainError):
    """The data cannot be used."""

    exit_code = ExitCode.BAD_DATA


class BadCheckpoint(TrainError):
    """The checkpoint cannot be resumed from. The job is not to blame: whoever saved it is."""

    exit_code = ExitCode.BAD_CHECKPOINT


class OutOfMemory(TrainError):
    """The device's memory is too small for this configuration."""

    exit_code = ExitCode.OUT_OF_MEMORY


class LostPeer(TrainError):
    """Another rank is not there any more, or does not answer."""

    exit_code = ExitCode.LOST_PEER


class Stopped(TrainError):
    """A signal stopped the training; its progress is in the last checkpoint."""

    exit_code = ExitCode.STOPPED
