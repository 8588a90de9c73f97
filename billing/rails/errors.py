"""How a call to a rail can fail, whichever rail it is.

Exception
|-- RailError      the rail could not be asked, or refused the call as a whole; the same call may be made again later
`-- RailUnknown    no rail of this name is on for this direction (a LookupError)

What Stripe adds to RailError is in stripe/records.py; FakeMoneyRefused is in loopback.py.
"""

from __future__ import annotations


class RailError(Exception):
    """The rail could not be asked, or refused the call as a whole; the same call may be made again later."""


class RailUnknown(LookupError):
    """No rail of this name is on for this direction."""
