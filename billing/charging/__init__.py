"""What a job costs, from the hold to the provider's pay.

holds.py              money set aside for a job: placed, extended, released
limits.py             how much an organisation or a member may spend in a period
promotions.py         given credit: spent before money, gone when it expires
metering.py           receipts of use, accepted or refused
token_usage.py        callers pay other organisations' endpoints for tokens
storage.py            customers pay for what they keep in the artifact store
fees.py               a charge divided into the marketplace's fee and the provider's pay
endings.py            the record of how a lease ended
settlement.py         a captured hold, split into providers' pay and fee, once
challenge_windows.py  how long a customer may contest that pay
releasing.py          providers' pay becomes spendable after its challenge window
"""
