"""/jobs and /launch: an organisation's jobs, the page of one, and a job file that becomes one.

listing.py    what the list is asked for: state, kind, a part of the name
showing.py    what the page of one job says of it, beyond what the API does
views.py      the list, the page of one job, its log
actions.py    cancel, more budget, do it again: each says what it will do and to whose money, and asks
launching.py  the editor: a job file that is checked while it is written, its plan and price, the launch
urls.py       the addresses
"""
