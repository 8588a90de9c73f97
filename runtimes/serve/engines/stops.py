"""Finds stop strings in a text that comes in pieces; nothing that could be the beginning of one leaves too early."""

from __future__ import annotations

from collections.abc import Sequence

STOPS_MAX = 16
STOP_CHARACTERS_MAX = 256


class StopFinder:
    """Hands on what was fed, up to the first stop string; what comes after it is dropped."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._kept = ""
        self.is_found = False

    def feed(self, text: str) -> str:
        """What may leave now."""
        if self.is_found:
            return ""
        self._kept += text
        places = [place for stop in self._stops if (place := self._kept.find(stop)) >= 0]
        if places:
            self.is_found = True
            left, self._kept = self._kept[: min(places)], ""
            return left
        held = self._beginning()
        left, self._kept = self._kept[: len(self._kept) - held], self._kept[len(self._kept) - held :]
        return left

    def flush(self) -> str:
        """What was held back, once it is clear that nothing follows."""
        left, self._kept = self._kept, ""
        return left

    def _beginning(self) -> int:
        """How many characters at the end could be the beginning of a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for size in range(min(longest, len(self._kept)), 0, -1):
            if any(stop.startswith(self._kept[-size:]) for stop in self._stops):
                return size
        return 0
