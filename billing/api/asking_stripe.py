"""Views that ask the payment processor while their caller waits: what goes wrong there gets an answer with a name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from billing.fiat.errors import CardsUnavailable, StripeUnreachable
from billing.rails.base import RailError
from billing.rails.stripe_rail import NotConfigured


@contextmanager
def asking_stripe() -> Iterator[None]:
    """Raises CardsUnavailable where there is no processor, StripeUnreachable where it does not answer as it should."""
    try:
        yield
    except NotConfigured as error:
        raise CardsUnavailable from error
    except RailError as error:
        raise StripeUnreachable(why=str(error).rstrip(".") + ".") from error
