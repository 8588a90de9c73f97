"""What a key may use: requests and tokens a minute, requests at once, a budget; and what an endpoint takes at once.

A request reserves the most that it can use when it is let in, and gives it back at its end; what it did use is taken
off when it is counted. Neither order nor repetition of those two matters, so a hedge that is counted late is right.

Budget: a grant has the amount that this gateway may still let a key spend, as of the rows of use that the grant
includes. What was counted here and is not among those rows (`spent - known`) is subtracted, and so is what is reserved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn
from uuid import UUID

from jobs.gateway.accounting.key_grants import out_of_budget
from jobs.gateway.errors import ApiError
from jobs.gateway.messages import EndpointRow, KeyGrant

MINUTE = 60.0
IN_FLIGHT_MAX = 2_000  # of one key without a limit of its own; an endpoint can still take others' requests
ACCOUNT_IDLE_SECONDS = 600.0
MICROS = 1_000_000
RETRY_SECONDS = 1.0


class Allowance:
    """Money that a key grant allows to spend: micro-USD counted here, in the marketplace's books, and reserved."""

    __slots__ = ("acked", "known", "reserved", "spent")

    def __init__(self) -> None:
        self.spent = self.acked = self.reserved = 0
        self.known = 0  # of `spent`, what the present grant's amount has taken off already

    def left(self, amount: int) -> int:
        """The part of the granted amount that may still be spent here."""
        return amount - (self.spent - self.known) - self.reserved


class Account:
    """One key's use, as this gateway counts it."""

    __slots__ = ("budget", "foreign", "in_flight", "rates", "refilled_at", "requests", "tokens")

    def __init__(self, now: float) -> None:
        # Left in this minute: the first refill cuts it to the limit. Below zero after a request that used more than it
        # reserved, and that may take longer than a minute to make good.
        self.requests = self.tokens = float("inf")
        self.rates = (0, 0)  # requests and tokens a minute, at the last refill; 0: without limit
        self.refilled_at = now
        self.in_flight = 0
        self.budget = Allowance()  # the key's, of every request
        self.foreign = Allowance()  # the payer's balance, of requests to other organisations' endpoints


class Ticket:
    """One request that was let in; `release` it."""

    __slots__ = ("account", "cost", "endpoint", "foreign_cost", "tokens")

    def __init__(self, account: Account, endpoint: int, tokens: float, cost: int, foreign_cost: int) -> None:
        self.account, self.endpoint, self.tokens = account, endpoint, tokens
        self.cost, self.foreign_cost = cost, foreign_cost


class Limits:
    """All accounts of one gateway."""

    def __init__(self, *, requests_per_endpoint_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._accounts: dict[int, Account] = {}  # by the key's id as a number: a UUID's own hash is slow
        self._endpoints: dict[int, int] = {}  # requests under way, likewise
        self._per_endpoint_max, self._clock = requests_per_endpoint_max, clock

    def __len__(self) -> int:
        return len(self._accounts)

    def admit(self, grant: KeyGrant, endpoint: EndpointRow, input_tokens: int, output_tokens: int) -> Ticket:
        """Let a request in, by the most that it can use. Raises ApiError 429."""
        account = self._refilled(grant)
        number = endpoint.endpoint_id.int
        in_flight = self._endpoints.get(number, 0)
        if in_flight >= self._per_endpoint_max:
            _refuse("server_overloaded", "This model has too many requests under way; please try again.", RETRY_SECONDS)
        most = IN_FLIGHT_MAX if grant.in_flight_max is None else grant.in_flight_max
        if account.in_flight >= most:
            _refuse(
                "rate_limit_exceeded", f"This key has {most} requests under way, and may not have more.", RETRY_SECONDS
            )
        if grant.requests_per_minute is not None and account.requests < 1:
            _refuse_rate("requests", grant.requests_per_minute, 1 - account.requests)
        tokens = _tokens_reserved(grant, account, input_tokens, output_tokens)
        cost = cost_usd_micros(endpoint, input_tokens, output_tokens)
        foreign_cost = cost if is_foreign(grant, endpoint) else 0
        if cost > _left(account.budget, grant.budget_usd_micros) or (
            foreign_cost and foreign_cost > account.foreign.left(grant.foreign_usd_micros or 0)
        ):
            raise out_of_budget()
        account.requests -= 1
        account.tokens -= tokens
        account.budget.reserved += cost
        account.foreign.reserved += foreign_cost
        account.in_flight += 1
        self._endpoints[number] = in_flight + 1
        return Ticket(account, number, tokens, cost, foreign_cost)

    def release(self, ticket: Ticket) -> None:
        """The request has ended: what it reserved is free again. Once a ticket."""
        account = ticket.account
        account.tokens += ticket.tokens
        account.budget.reserved -= ticket.cost
        account.foreign.reserved -= ticket.foreign_cost
        account.in_flight -= 1
        left = self._endpoints[ticket.endpoint] - 1
        if left:
            self._endpoints[ticket.endpoint] = left
        else:
            del self._endpoints[ticket.endpoint]

    def spend(self, key_id: UUID, tokens: int, cost: int, *, foreign: bool = False) -> None:
        """A replica's part of a request was counted."""
        account = self._account(key_id)
        account.tokens -= tokens
        account.budget.spent += cost
        if foreign:
            account.foreign.spent += cost

    def acknowledge(self, key_id: UUID, cost: int, *, foreign: bool = False) -> None:
        """A row of this key's use is in the marketplace's books."""
        account = self._account(key_id)
        for allowance in (account.budget, account.foreign) if foreign else (account.budget,):
            allowance.acked = min(allowance.acked + cost, allowance.spent)

    def renew(self, grant: KeyGrant) -> None:
        """A grant came: its amounts are as of the rows that are acknowledged."""
        account = self._account(grant.key_id)
        account.budget.known, account.foreign.known = account.budget.acked, account.foreign.acked

    def budget_left(self, grant: KeyGrant) -> float:
        """Micro-USD that a key may still be let spend here; infinite without a budget."""
        return _left(self._account(grant.key_id).budget, grant.budget_usd_micros)

    def cut(self, grant: KeyGrant) -> KeyGrant:
        """The grant with what is left of its amounts: what was spent is not given out again after a restart."""
        account = self._account(grant.key_id)
        budget, foreign = grant.budget_usd_micros, grant.foreign_usd_micros
        return grant.model_copy(
            update={
                "budget_usd_micros": None if budget is None else max(0, account.budget.left(budget)),
                "foreign_usd_micros": None if foreign is None else max(0, account.foreign.left(foreign)),
            }
        )

    def rate_headers(self, grant: KeyGrant) -> list[tuple[bytes, bytes]]:
        """OpenAI's x-ratelimit-*, for the limits that the key has."""
        rates = (("requests", grant.requests_per_minute), ("tokens", grant.tokens_per_minute))
        if rates[0][1] is None and rates[1][1] is None:
            return []
        account, headers = self._refilled(grant), []
        for name, limit in rates:
            if limit is None:
                continue
            left = max(0.0, account.requests if name == "requests" else account.tokens)
            for what, value in (
                ("limit", str(limit)),
                ("remaining", str(int(left))),
                ("reset", _span((limit - left) * MINUTE / max(limit, 1))),
            ):
                headers.append((f"x-ratelimit-{what}-{name}".encode(), value.encode()))
        return headers

    def sweep(self) -> None:
        """Forget accounts that nothing hangs on, that were not used for long, and that a minute's worth is left of."""
        now = self._clock()
        idle = [
            number
            for number, account in self._accounts.items()
            if account.refilled_at < now - ACCOUNT_IDLE_SECONDS
            and account.in_flight == 0
            and account.budget.spent == account.budget.acked
            and _owes_nothing(account, now)
        ]
        for number in idle:
            del self._accounts[number]

    def _account(self, key_id: UUID) -> Account:
        account = self._accounts.get(key_id.int)
        if account is None:
            account = self._accounts[key_id.int] = Account(self._clock())
        return account

    def _refilled(self, grant: KeyGrant) -> Account:
        account, now = self._account(grant.key_id), self._clock()
        parts = (now - account.refilled_at) / MINUTE
        account.refilled_at = now
        account.rates = (grant.requests_per_minute or 0, grant.tokens_per_minute or 0)
        if grant.requests_per_minute is not None:
            account.requests = _refill(account.requests, grant.requests_per_minute, parts)
        if grant.tokens_per_minute is not None:
            account.tokens = _refill(account.tokens, grant.tokens_per_minute, parts)
        return account


def cost_usd_micros(endpoint: EndpointRow, input_tokens: int, output_tokens: int) -> int:
    """By the endpoint's prices, rounded up: the least request takes something off, until the books say how much."""
    return -(-cost_usd_picos(endpoint, input_tokens, output_tokens) // MICROS)


def cost_usd_picos(endpoint: EndpointRow, input_tokens: int, output_tokens: int) -> int:
    """Exactly: a price is micro-USD for a million tokens, so a token costs that many pico-USD."""
    return input_tokens * endpoint.input_usd_micros_per_million + output_tokens * endpoint.output_usd_micros_per_million


def is_foreign(grant: KeyGrant, endpoint: EndpointRow) -> bool:
    """Whether the caller pays another organisation."""
    return grant.organisation_id.int != endpoint.organisation_id.int


def _left(allowance: Allowance, amount: int | None) -> float:
    return float("inf") if amount is None else allowance.left(amount)


def _tokens_reserved(grant: KeyGrant, account: Account, input_tokens: int, output_tokens: int) -> float:
    limit = grant.tokens_per_minute
    if limit is None:
        return 0.0
    if input_tokens > limit:
        raise ApiError(
            429,
            "rate_limit_exceeded",
            f"The request has about {input_tokens} tokens, and this key may use {limit} a minute.",
            type="tokens",
        )
    tokens = float(min(input_tokens + output_tokens, limit))  # a larger request waits for a full minute's worth
    if account.tokens < tokens:
        _refuse_rate("tokens", limit, tokens - account.tokens)
    return tokens


def _owes_nothing(account: Account, now: float) -> bool:
    parts = (now - account.refilled_at) / MINUTE
    left = zip((account.requests, account.tokens), account.rates, strict=True)
    return all(have + rate * parts >= rate for have, rate in left if rate)


def _refill(left: float, limit: int, parts: float) -> float:
    return min(float(limit), left + limit * parts)


def _refuse_rate(what: str, limit: int, missing: float) -> NoReturn:
    seconds = missing * MINUTE / max(limit, 1)
    raise ApiError(
        429,
        "rate_limit_exceeded",
        f"Rate limit reached: {limit} {what} a minute. Please try again in {_span(seconds)}.",
        type=what,
        retry_after=seconds,
    )


def _refuse(code: str, message: str, seconds: float) -> NoReturn:
    raise ApiError(429, code, message, type="requests", retry_after=seconds)


def _span(seconds: float) -> str:
    """As OpenAI writes it: 6m0s, 1.2s, 20ms."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))}ms"
    minutes, rest = divmod(seconds, MINUTE)
    return f"{int(minutes)}m{rest:.0f}s" if minutes else f"{rest:.1f}s"
