"""What payouts refuse, by name.

BillingError
|-- DestinationRefused      400  the rail cannot pay there; says why
|-- RailOff                 400  this marketplace does not pay by that rail, or not in that asset
|-- WalletNotSigned         400  the new wallet did not sign; details.text is what it has to sign
|-- PayoutSettingsMissing   404  nobody said where the money goes
|-- NothingToPay            409  less than the minimum is there
|-- PayoutUnderWay          409  one of this asset has not ended
|-- PayoutNotFailed         409  only a failed payout is tried again
|-- PayoutsStopped          503  reconciliation found a difference that nobody explained yet
`-- StatementRefused        400  the period makes no sense, or is too long for its format
"""

from __future__ import annotations

from billing.errors import BillingError


class DestinationRefused(BillingError):
    """Nothing can be paid there: {why}"""

    code = "destination_refused"
    status = 400


class RailOff(BillingError):
    """This marketplace does not pay {asset} by {rail}. It pays by: {on}."""

    code = "rail_off"
    status = 400


class WalletNotSigned(BillingError):
    """The new wallet has to sign the text in details.text (personal_sign); {why}."""

    code = "wallet_not_signed"
    status = 400


class PayoutSettingsMissing(BillingError):
    """Say first where your {asset} should go: `souk provider pay-to`, or PUT /api/v1/payout-settings."""

    code = "payout_settings_missing"
    status = 404


class NothingToPay(BillingError):
    """{available} can be paid out, and a payout is at least {minimum}."""

    code = "nothing_to_pay"


class PayoutUnderWay(BillingError):
    """A payout of this asset is under way. The next one can leave when it has ended."""

    code = "payout_under_way"


class PayoutNotFailed(BillingError):
    """Payout {payout_id} is {state}; only a failed or returned one is tried again."""

    code = "payout_not_failed"


class PayoutsStopped(BillingError):
    """Payouts are stopped since {since}: the books do not agree with the outside, and an operator is looking."""

    code = "payouts_stopped"
    status = 503


class StatementRefused(BillingError):
    """No statement of this period: {why}."""

    code = "statement_refused"
    status = 400
