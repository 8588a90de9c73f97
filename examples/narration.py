"""What the demo prints: chapters with their seconds, commands with what they print, claims that were checked."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from examples import market
from examples.market import MarketError
from jobs.payment.terms import show_units
from jobs.wire import TransferView

CHAPTERS: list[tuple[str, float]] = []  # heading, when it began


@dataclass
class Claims:
    """Everything that was checked; the demo's exit status hangs on it alone."""

    checked: list[str] = field(default_factory=list)

    def check(self, claim: str, is_true: object, seen: object = "") -> None:
        """Note a claim as seen, or end the demo here."""
        if not is_true:
            raise MarketError(f"not so: {claim}" + (f" (seen: {seen})" if seen != "" else ""))
        self.checked.append(claim)
        say(f"   [ok] {claim}" + (f": {seen}" if seen != "" else ""))


def say(text: str = "") -> None:
    """One line of the demo's output."""
    print(text, flush=True)


def title(number: int, text: str) -> None:
    """The heading of a chapter; its seconds are added up at the end."""
    CHAPTERS.append((text, time.monotonic()))
    say(f"\n== {number}. {text}  [{time.strftime('%H:%M:%S')}]")


def show_seconds() -> None:
    """How long each chapter took."""
    ends = [began for _, began in CHAPTERS[1:]] + [time.monotonic()]
    say("\n   seconds")
    for (text, began), end in zip(CHAPTERS, ends, strict=True):
        say(f"     {end - began:6.1f}  {text}")


def show(command: list[str], env: dict[str, str]) -> None:
    """Run one of our commands as a user would, for all to see."""
    say("   $ " + " ".join([Path(command[0]).name, *command[1:]]))
    for line in market.run(command, env).rstrip().splitlines():
        say("     " + line)


def show_trail(name: str, trail: Sequence[TransferView]) -> None:
    """Every movement of somebody's money, the oldest first; the API has the newest first."""
    say(f"   {name}'s trail:")
    for each in reversed(trail):
        mode = "" if each.mode == "single" else f" ({each.mode})"
        amount = show_units(each.amount, asset=each.asset, scale=each.scale)
        say(f"     {amount:>14}  {each.debit_kind} -> {each.credit_kind}: {each.code}{mode}")


def dollars(usd_micros: int) -> str:
    """To the micro-dollar."""
    return f"${Decimal(usd_micros) / 1_000_000:.6f}"


def show_process(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        say("     " + line.rstrip())
