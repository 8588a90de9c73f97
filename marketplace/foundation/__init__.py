"""What every app of the server uses.

State:
    state_triggers.py    a state machine's edges as triggers of its table
    states.py            `advance`, the only writer of a state; every move writes an event
    models.py            the tables of events, idempotency keys and outbox messages
    event_seals.py       the hash chain over all events
    many_models.py       a migration's step that makes many models, rendered once
    outbox.py            calls to other systems: written in a transaction, made after it, at least once
    snapshot.py          everything that is read inside is of one moment
    exclusive.py         one process at a time; one failing row does not stop the others
    postgresql/          the database backend: a moment beyond the calendar does not fail a query
    moments.py           a column of moments that strangers name, and its constraint

Requests:
    actors.py            in whose name a request acts
    addresses/           whose address something counts under, behind which proxies
    idempotency.py       a repeated request has one effect: Idempotency-Key
    pagination.py        lists in pages
    parsers.py           JSON bodies: no zero bytes, and no depth without end
    serializers.py       bases that refuse unknown fields, and moments beyond the calendar
    throttles.py         how often a client may call

Everything:
    admin.py             bases of the operators' pages
    apps.py              the Django app
    clock.py             the server's time
    errors.py            the root of all errors
    ids.py               new ids
    signing.py           the marketplace's own keys
    tasks.py             Celery tasks
    tokens.py            secrets that are stored as a hash
    totp.py              codes of six digits that change every half a minute
"""
