"""The server, except for jobs and billing.

    accounts/      users, organisations, roles, API keys
    config/        settings, addresses, Celery, embedded mode, server commands
    foundation/    what every app uses: state machines, events, idempotency, the outbox, errors
    nodes/         the providers' nodes: enrolment, devices, offers, checks, liveness, agent releases
    portal/        web pages

Imports point down: config and portal, jobs, nodes and billing, accounts, foundation.
"""
