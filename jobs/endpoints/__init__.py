"""What a serving job is beyond a job: its endpoint, versions, replicas, keys, use and money. Never imports lifecycle.

An endpoint and its replicas:

    versions.py          opens an endpoint, deploys and rolls back its versions, closes it
    replicas.py          a replica's states
    views.py             endpoints as the public API shows them
    errors.py            what can go wrong

Gateways (their other end is `jobs/gateway/control_sync.py`; the API is `jobs/api/gateways.py`):

    gateways.py          which gateways are live, and the list of them that agents get
    ingest.py            stores what a gateway reports
    publish.py           the table of endpoints and replicas that gateways get
    minutes.py           load per minute of endpoints and replicas

Keys and use:

    keys.py              issues, lists and revokes endpoint keys
    key_grants.py        key grants for gateways, with slices of budgets and balances
    spend_limits.py      calls of others' endpoints within the spend limits of who pays for them
    usage.py             books the rows of use that gateways send, each once
    usage_books.py       the tables of use
    remainders.py        exact costs: what is below a micro-dollar is carried on
    usage_views.py       sums of use as the public API shows them
    usage_statements.py  agents' token usage statements, compared with the gateways' counts

Money:

    payments.py          prepaid windows, and settling the leases of a job
    amounts.py           how much is set aside, used, settled, earned
    token_payments.py    callers of other organisations pay by the token
"""
