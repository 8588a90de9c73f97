"""What payouts refuse, by name. PayoutsStopped is with the switch that stops them, in billing/errors.py.

BillingError
|-- DestinationRefused      400  the rail cannot pay there; has the reason
|-- RailOff                 400  this marketplace does not pay by that rail, or not in that asset
|-- WalletNotSigned         400  the new wallet did not sign; details.text is what it has to sign
|-- PayoutSettingsMissing   404  no destination was chosen
|-- NothingToPay            409  less than the minimum is there
|-- PayoutUnderWay          409  one of this asset has not ended
|-- PayoutNotFailed         409  only a failed payout is tried again
`-- StatementRefused        400  the period makes no sense, or is too long for its format
"""

from __future__ import annotations

from billing.errors import BillingError


class DestinationRefused(BillingError):
    message = "Nothing can be paid there: {why}"
    code = "destination_refused"
    status = 400


class RailOff(BillingError):
    message = "This marketplace does not pay {asset} by {rail}. It pays by: {on}."
    code = "rail_off"
    status = 400


class WalletNotSigned(BillingError):
    message = "The new wallet has to sign the text in details.text (personal_sign); {why}."
    code = "wallet_not_signed"
    status = 400


class PayoutSettingsMissing(BillingError):
    message = "Say first where your {asset} should go: `souk provider pay-to`, or PUT /api/v1/payout-settings."
    code = "payout_settings_missing"
    status = 404


class NothingToPay(BillingError):
    message = "{available} can be paid out, and a payout is at least {minimum}."
    code = "nothing_to_pay"


class PayoutUnderWay(BillingError):
    message = "A payout of this asset is under way. The next one can leave when it has ended."
    code = "payout_under_way"


class PayoutNotFailed(BillingError):
    message = "Payout {payout_id} is {state}; only a failed or returned one is tried again."
    code = "payout_not_failed"


class StatementRefused(BillingError):
    message = "No statement of this period: {why}."
    code = "statement_refused"
    status = 400
