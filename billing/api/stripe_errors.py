"""Views that call the payment processor while their caller waits: each failure there has an answer with a code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from billing.fiat.errors import CardsUnavailable, StripeUnreachable
from billing.rails.errors import RailError
from billing.rails.stripe.client import NotConfigured


@contextmanager
def named_stripe_errors() -> Iterator[None]:
    """Raises CardsUnavailable where there is no processor, StripeUnreachable where it does not answer as it should."""
    try:
        yield
    except NotConfigured as error:
        raise CardsUnavailable from error
    except RailError as error:
        raise StripeUnreachable(why=str(error).rstrip(".") + ".") from error
