"""Brings events to a receiver as badly as Stripe and the network may: twice, late, in any order, mis-signed, never.

Stripe promises at-least-once delivery without order and retries what is not answered with 2xx; what is dropped here
stands for an event that was never delivered although it is in the log.
"""

from __future__ import annotations

import json
import random
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.fakes.stripe.events import is_wanted, sign
from tests.fakes.stripe.shapes import Object

if TYPE_CHECKING:
    from tests.fakes.stripe.fake import FakeStripe

ANSWER_SECONDS_MAX: Final = 30.0

# Takes the raw body and the Stripe-Signature header; returns the HTTP status, None for 200.
Receiver = Callable[[bytes, str], int | None]


@dataclass(frozen=True)
class WebhookFaults:
    """How likely each fault is, from 0 to 1, for each event; `copies_max` bounds how often one is repeated."""

    duplicate: float = 0.0
    drop: float = 0.0
    delay: float = 0.0  # comes only with a later call of deliver
    missign: float = 0.0  # an additional delivery with a wrong signature
    stale: float = 0.0  # an additional delivery, rightly signed an hour ago
    reorder: bool = False
    copies_max: int = 3
    seed: int = 0


@dataclass(frozen=True)
class Delivery:
    """One POST that was made, and how it was answered."""

    event_id: str
    type: str
    fault: str  # "", duplicate, missign or stale
    status: int


@dataclass
class Deliverer:
    """What one receiver has still to receive."""

    stripe: FakeStripe
    seen: int = 0  # of the event log
    waiting: list[Object] = field(default_factory=list)

    def deliver(self, receive: Receiver, secret: str, faults: WebhookFaults, types: tuple[str, ...]) -> list[Delivery]:
        """Send what has happened since, and what waits from before; whatever is not answered with 2xx waits again."""
        dice = random.Random(f"webhooks {faults.seed} {self.seen}")
        fresh = self.stripe.events[self.seen :]
        self.seen += len(fresh)
        due = self.waiting + [event for event in fresh if is_wanted(event, types)]
        self.waiting = []
        plan: list[tuple[Object, str]] = []
        for event in due:
            if dice.random() < faults.drop:
                continue
            if dice.random() < faults.delay:
                self.waiting.append(event)
                continue
            plan.append((event, ""))
            if dice.random() < faults.duplicate:
                plan += [(event, "duplicate")] * dice.randint(1, faults.copies_max)
            plan += [(event, name) for name in ("missign", "stale") if dice.random() < getattr(faults, name)]
        if faults.reorder:
            dice.shuffle(plan)
        made = [self._send(receive, secret, event, fault) for event, fault in plan]
        refused = {one.event_id for one in made if one.fault == "" and not 200 <= one.status < 300}
        self.waiting += [event for event in due if event["id"] in refused]
        return made

    def _send(self, receive: Receiver, secret: str, event: Object, fault: str) -> Delivery:
        body = body_of(event)
        at = self.stripe.signing_time() - (3600 if fault == "stale" else 0)
        signature = sign(body, f"{secret}x" if fault == "missign" else secret, at)
        return Delivery(event["id"], event["type"], fault, receive(body, signature) or 200)


def body_of(event: Object) -> bytes:
    """The raw body as Stripe sends it: indented JSON."""
    return json.dumps(event, indent=2).encode()


def post_to(url: str) -> Receiver:
    """A receiver behind a URL."""

    def receive(body: bytes, signature: str) -> int:
        headers = {"Content-Type": "application/json; charset=utf-8", "Stripe-Signature": signature}
        request = urllib.request.Request(url, body, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    return receive
