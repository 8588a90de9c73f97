"""The rows: what the caller of each route needs. The admin's routes need no rows: all of them are for staff.

A route of the web process that has no row here fails `test_matrix.py`, as does a row of a route that is gone.
"""

from __future__ import annotations

from typing import Final

from marketplace.accounts.scopes import Scope

OPEN: Final = "open"  # anybody; what is shown is public, or the body proves who it is (sign-in, enrolment, Stripe)
SECRET: Final = "secret"  # a password in the form, or a link that was mailed
SIGNED_ADDRESS: Final = "signed-address"  # whoever has an address that the marketplace signed
METRICS: Final = "metrics"  # loopback, or the token of metrics
SIGNED_IN: Final = "signed-in"  # any user's key or session, whatever it may do
WHOLE: Final = "whole"  # a session, or a key that may do all that its user may
MEMBER: Final = "member"  # any key, or a session that acts for an organisation
SESSION: Final = "session"  # a page: the browser of a user who signed in; others are led to /signin
SESSION_AND_JOBS: Final = f"{SESSION} {Scope.JOBS_WRITE}"
SESSION_TO_SEE_JOBS: Final = f"{SESSION} {Scope.JOBS_READ}"
SESSION_AND_BILLING: Final = f"{SESSION} {Scope.BILLING_READ}"
SESSION_TO_SEE_NODES: Final = f"{SESSION} {Scope.PROVIDER_READ}"
SESSION_TO_CHANGE_NODES: Final = f"{SESSION} {Scope.PROVIDER_WRITE}"
SESSION_TO_PAY: Final = f"{SESSION} {Scope.BILLING_WRITE}"
AGENT: Final = "agent"  # a request that a node signed
GATEWAY: Final = "gateway"  # the gateways' token
STAFF: Final = "staff"  # operators, signed in to the admin

_ROWS: Final[dict[str, str]] = {
    OPEN: """
        GET /password/forgotten
        POST /password/forgotten
        GET /
        GET /signin
        GET /signup
        POST /signup
        GET /offers
        POST /signout
        GET /solvency
        GET /install.sh
        GET /dist/manifest.json
        GET /dist/manifest.sig
        GET /dist/releases/<str:version>/manifest.json
        GET /dist/releases/<str:version>/manifest.sig
        GET /dist/bandwidth
        GET /dist/<str:name>
        GET /nodes/<uuid:node_id>
        GET /nodes/<uuid:node_id>.json
        GET /api/v1/fake-card/<uuid:top_up_id>
        POST /api/v1/fake-card/<uuid:top_up_id>
        POST /api/v1/signup
        POST /api/v1/login
        GET /api/v1/offers
        GET /api/v1/solvency
        GET /api/v1/solvency/reports
        GET /api/v1/solvency/reports/<int:number>
        POST /api/v1/stripe/webhook
        GET /api/v1/signing-key
        POST /api/agent/v1/enrol
        GET /api/schema
        GET /api/docs
        GET /healthz
    """,
    SECRET: """
        POST /signin
        POST /password
        POST /second-factor
        GET /password/reset/<str:user_id>/<str:token>
        POST /password/reset/<str:user_id>/<str:token>
        GET /signup/confirm/<str:text>
        POST /signup/confirm/<str:text>
    """,
    SIGNED_ADDRESS: """
        GET /artifacts/<path:key>
        PUT /artifacts/<path:key>
    """,
    METRICS: """
        GET /metrics
    """,
    SIGNED_IN: """
        POST /api/v1/api-keys
        POST /api/v1/logout
        GET /api/v1/me
        GET /api/v1/organisations
    """,
    WHOLE: """
        POST /api/v1/invitations/accept
        POST /api/v1/organisations
    """,
    MEMBER: """
        GET /api/v1/api-keys
        DELETE /api/v1/api-keys/<uuid:key_id>
        POST /api/v1/api-keys/<uuid:key_id>/rotate
    """,
    Scope.ACCOUNT_ADMIN: """
        GET /api/v1/members
        PATCH /api/v1/members/<uuid:user_id>
        DELETE /api/v1/members/<uuid:user_id>
        GET /api/v1/invitations
        POST /api/v1/invitations
        DELETE /api/v1/invitations/<uuid:invitation_id>
    """,
    Scope.JOBS_READ: """
        GET /api/v1/jobs
        GET /api/v1/jobs/<uuid:job_id>
        GET /api/v1/jobs/<uuid:job_id>/logs
        GET /api/v1/plan-checks
        GET /api/v1/jobs/<uuid:job_id>/events
        GET /api/v1/jobs/<uuid:job_id>/curve
        GET /api/v1/jobs/<uuid:job_id>/metrics
        GET /api/v1/jobs/<uuid:job_id>/artifacts
        GET /api/v1/endpoints
        GET /api/v1/endpoints/<uuid:endpoint_id>
        GET /api/v1/assets
        GET /api/v1/endpoint-keys
        GET /api/v1/artifacts/<uuid:artifact_id>
        GET /api/v1/storage
        GET /api/v1/volumes
        GET /api/v1/volumes/<str:name>
    """,
    Scope.JOBS_WRITE: """
        POST /api/v1/quotes
        POST /api/v1/uploads
        POST /api/v1/uploads/<uuid:artifact_id>/complete
        DELETE /api/v1/artifacts/<uuid:artifact_id>
        POST /api/v1/volumes
        DELETE /api/v1/volumes/<str:name>
        POST /api/v1/jobs
        POST /api/v1/jobs/<uuid:job_id>/cancel
        POST /api/v1/jobs/<uuid:job_id>/resume
        POST /api/v1/jobs/<uuid:job_id>/confirm-price
        POST /api/v1/jobs/<uuid:job_id>/retry
        POST /api/v1/endpoints/<uuid:endpoint_id>/rollback
        POST /api/v1/endpoints/<uuid:endpoint_id>/take-back
        POST /api/v1/endpoints/<uuid:endpoint_id>/versions
        POST /api/v1/endpoint-keys
        DELETE /api/v1/endpoint-keys/<uuid:key_id>
    """,
    Scope.BILLING_READ: """
        GET /api/v1/balance
        GET /api/v1/deposits
        GET /api/v1/transfers
        GET /api/v1/payout-settings
        GET /api/v1/payouts
        GET /api/v1/accrual
        GET /api/v1/statements
        GET /api/v1/solvency/proof
        GET /api/v1/escrow
        GET /api/v1/payouts/<uuid:payout_id>/proof
        GET /api/v1/disputes
        GET /api/v1/disputes/<uuid:dispute_id>
        GET /api/v1/spend-limits
        GET /api/v1/promotions
        GET /api/v1/invoices
        GET /api/v1/invoices/<uuid:invoice_id>
        GET /api/v1/invoices/<uuid:invoice_id>/pdf
        GET /api/v1/invoices/<uuid:invoice_id>/csv
        GET /api/v1/billing-details
        GET /api/v1/top-ups
        GET /api/v1/top-ups/<uuid:top_up_id>
        GET /api/v1/top-ups/<uuid:top_up_id>/refunds
        GET /api/v1/auto-top-up
        GET /api/v1/cards
        GET /api/v1/payout-account
        GET /api/v1/jobs/<uuid:job_id>/bill
        GET /api/v1/jobs/<uuid:job_id>/bill/export
        GET /api/v1/provider/earnings/export
        GET /api/v1/provider/delegations
        GET /api/v1/usage
    """,
    Scope.BILLING_WRITE: """
        PUT /api/v1/payout-settings
        POST /api/v1/payouts
        POST /api/v1/payouts/<uuid:payout_id>/retry
        POST /api/v1/disputes
        POST /api/v1/disputes/<uuid:dispute_id>/answer
        POST /api/v1/disputes/<uuid:dispute_id>/withdraw
        POST /api/v1/spend-limits
        DELETE /api/v1/spend-limits/<uuid:limit_id>
        POST /api/v1/promotions
        PUT /api/v1/billing-details
        POST /api/v1/top-ups
        POST /api/v1/top-ups/<uuid:top_up_id>/refunds
        PUT /api/v1/auto-top-up
        POST /api/v1/cards/setup
        DELETE /api/v1/cards/<uuid:card_id>
        POST /api/v1/cards/<uuid:card_id>/default
        POST /api/v1/payout-account
        POST /api/v1/payout-account/onboarding
        POST /api/v1/provider/delegations
        DELETE /api/v1/provider/delegations/<uuid:delegation_id>
    """,
    Scope.PROVIDER_READ: """
        GET /api/v1/provider
        GET /api/v1/provider/enrolment-tokens
        GET /api/v1/provider/nodes
        GET /api/v1/provider/nodes/<uuid:node_id>
        GET /api/v1/provider/nodes/<uuid:node_id>/checks
        GET /api/v1/provider/nodes/<uuid:node_id>/reputation
        GET /api/v1/provider/nodes/<uuid:node_id>/metrics
        GET /api/v1/provider/nodes/<uuid:node_id>/schedule
    """,
    Scope.PROVIDER_WRITE: """
        POST /api/v1/provider
        POST /api/v1/provider/enrolment-tokens
        PUT /api/v1/provider/nodes/<uuid:node_id>/schedule
        POST /api/v1/provider/nodes/<uuid:node_id>/drain
        POST /api/v1/provider/nodes/<uuid:node_id>/resume
        POST /api/v1/provider/nodes/<uuid:node_id>/retire
        PATCH /api/v1/provider/nodes/<uuid:node_id>/offer
    """,
    SESSION: """
        GET /password
        GET /second-factor
        GET /chat
        POST /chat/organisation
        GET /chat/datasets
        GET /chat/datasets/<uuid:dataset_id>
        GET /chat/datasets/<uuid:dataset_id>/job.yaml
        GET /chat/datasets/<uuid:dataset_id>/files/<str:name>
        GET /chat/<uuid:chat_id>
        POST /chat/<uuid:chat_id>/settings
        POST /chat/<uuid:chat_id>/delete
        GET /chat/<uuid:chat_id>/export.jsonl
        GET /chat/<uuid:chat_id>/messages/<uuid:message_id>
        POST /chat/<uuid:chat_id>/messages/<uuid:message_id>/stop
        POST /chat/<uuid:chat_id>/messages/<uuid:message_id>/left-out
        GET /usage
        GET /earn/nodes
    """,
    SESSION_AND_JOBS: """
        POST /chat/new
        POST /chat/<uuid:chat_id>/messages
        POST /chat/datasets/<uuid:dataset_id>/quote
        POST /chat/datasets/<uuid:dataset_id>/launch
        POST /jobs/cancel
        POST /jobs/<uuid:job_id>/cancel
        POST /jobs/<uuid:job_id>/budget
        POST /jobs/<uuid:job_id>/repeat
        GET /launch
        POST /launch/check
        POST /launch/price
        POST /launch/now
    """,
    SESSION_TO_SEE_JOBS: """
        GET /jobs
        GET /jobs/<uuid:job_id>
        GET /jobs/<uuid:job_id>/now
        GET /jobs/<uuid:job_id>/log
        GET /jobs/<uuid:job_id>/log.txt
    """,
    SESSION_AND_BILLING: """
        GET /usage.csv
        GET /billing
        GET /billing/top-ups/<uuid:top_up_id>
        GET /billing/top-ups/<uuid:top_up_id>/now
    """,
    SESSION_TO_SEE_NODES: """
        GET /earn
        GET /earn/joining/<uuid:token_id>
        GET /earn/nodes/<uuid:node_id>
    """,
    SESSION_TO_CHANGE_NODES: """
        POST /earn/nodes
        POST /earn/nodes/<uuid:node_id>/drain
        POST /earn/nodes/<uuid:node_id>/resume
        POST /earn/nodes/<uuid:node_id>/price
    """,
    SESSION_TO_PAY: """
        POST /billing/top-ups
    """,
    AGENT: """
        POST /api/agent/v1/measurements
        POST /api/agent/v1/^checks/(?P<check_id>[0-9a-f-]{36})/(?P<step>begin|commit|reveal|filled|recall)$
        POST /api/agent/v1/^links/(?P<probe_id>[0-9a-f-]{36})$
        GET /api/agent/v1/sample
        GET /api/agent/v1/standing
        POST /api/agent/v1/drain
        POST /api/agent/v1/resume
        POST /api/agent/v1/price
        GET /api/agent/v1/schedule
        POST /api/agent/v1/schedule
        POST /api/agent/v1/retire
        GET /api/agent/v1/earnings
        POST /api/agent/v1/leases/<uuid:lease_id>/logs
        POST /api/agent/v1/leases/<uuid:lease_id>/events
        POST /api/agent/v1/leases/<uuid:lease_id>/receipts
        POST /api/agent/v1/leases/<uuid:lease_id>/statement
        POST /api/agent/v1/leases/<uuid:lease_id>/artifacts
        GET /api/agent/v1/leases/<uuid:lease_id>/artifacts/<uuid:artifact_id>
        POST /api/agent/v1/leases/<uuid:lease_id>/artifacts/<uuid:artifact_id>/complete
    """,
    GATEWAY: """
        POST /internal/gateway/v1/sync
        POST /internal/gateway/v1/keys
    """,
}
NEEDS: Final[dict[tuple[str, str], str]] = {
    (method, route): need
    for need, lines in _ROWS.items()
    for method, route in (line.split(maxsplit=1) for line in lines.strip().splitlines())
}
