"""Endpoints: what a serving job is beyond a job. With the ORM; gateways have none, and speak to `gateway_api.py`.

An endpoint and its replicas:

    endpoints.py     opened with its job, given new versions, closed       replicas.py     a replica's life
    keeping.py       the tick: start here                                  placing.py      replicas that are missing
    seats.py         the best free place for one                           views.py        as the public API shows them
    errors.py        what can go wrong

How many, of which version, where: decided by pure functions, over what seeing.py and minutes.py read:

    seeing.py        rows in, plain views out                              minutes.py      what was, minute by minute
    autoscaling.py   how many                                              forecast.py     how many soon
    cold_start.py    how long a start takes                                rollout.py      which version has which share
    stepping.py      which start, which go                                 spreading.py    on which node, and who is bad

The word with the gateways:

    gateway_api.py   two calls, by the gateways' token                     urls.py         where they are
    hearing.py       what they see is taken in                             telling.py      what they should know
    gateways.py      which are there                                       audits.py       what checks lead to

Keys, use and money:

    keys.py          made, listed, revoked                                 grants.py       what a key may, for a minute
    usage.py         what was used, once each                              usage_books.py  the tables of it
    usage_views.py   its sums                                              token_payments.py   callers of others pay
    payments.py      a window set aside, parts settled                     windows.py      the sweeps over it
    statements.py    the agents' count against the gateways'
"""
