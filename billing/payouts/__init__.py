"""What providers earned leaves: when, how much, by which rail, and the statement of it.

preferences.py         where a provider wants its money; a change waits
calendar.py            when the next payout is due
running.py             the payout run: everybody who is due, once
paying.py              a payout when its provider asks; the call to the rail
reserving.py           many payouts' money set aside at once
rolling_reserve.py     the part of a new provider's pay that is kept back
submission.py          reserved payouts are handed to their rail, each once
outcomes.py            books what a rail reports
confirming.py          payouts that arrived
bank_legs.py           from the provider's account at Stripe to its bank
stripe_events.py       what Stripe's events say of payouts and transfers
notifying.py           mail about a new destination and a failed payout
accrual.py             what was earned up to now, and when it comes
statement.py           what a provider earned and was paid in a period
statement_formats.py   the statement as CSV, PDF and JSON
checks.py              settings with which payouts could not work
errors.py              what payouts refuse
"""
