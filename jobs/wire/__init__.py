"""Types of the public API, shared by the server that answers and the client that asks. No Django.

Money is an integer in micro-USD, or a text of an asset's base units (fields that end in _units); times are aware UTC.
See `provider_agent.protocol` for the agents' side.

base.py       what all types have in common, and the form of an error
job.py        jobs, attempts, streams, figures
quotes.py     plans and quotes
plan_checks.py  how far plans of trainings were off
bill.py       bills and earnings
prices.py     token prices of a job
artifacts.py  uploads and downloads
volumes.py    named folders that jobs share
assets.py     assets and wallets
serving.py    endpoints, versions, replicas
usage.py      keys and what was used with them
supply.py     nodes, devices, offers
account.py    who somebody is
money.py      balances and movements
topups.py     payments by card, refunds, automatic top-ups
organisation.py  members, invitations, spend limits
documents.py  invoices, disputes
"""

from __future__ import annotations

from jobs.wire.account import MeView, OrganisationView, SignIn
from jobs.wire.artifacts import ArtifactView, StorageView, UploadComplete, UploadRequest, UploadView
from jobs.wire.assets import AssetList, AssetView, DelegationList, DelegationRequest, DelegationView
from jobs.wire.base import ErrorView, Units, Wire
from jobs.wire.bill import (
    BILL_FORMAT,
    EARNINGS_FORMAT,
    BillLine,
    BillView,
    EarningsLine,
    EarningsView,
    PriceView,
    SignedExport,
    SigningKeyView,
)
from jobs.wire.job import (
    AttemptView,
    CurvePointView,
    CurveSeries,
    EscrowLeaseView,
    EscrowView,
    EvaluationView,
    GenerationView,
    JobCurve,
    JobMetrics,
    JobView,
    LeaseView,
    MetricsPoint,
    ResumeRequest,
    StreamPage,
    SubmitRequest,
)
from jobs.wire.money import (
    AssetBalanceView,
    BalanceView,
    DepositView,
    PayoutSettingsView,
    PayoutView,
    ProofView,
    TransferView,
)
from jobs.wire.plan_checks import PlanChecks, PlanCheckSummary
from jobs.wire.prices import ConfirmPriceRequest, JobPriceView, PriceChangeView
from jobs.wire.quotes import Candidate, EscrowTerms, EvaluationTerms, Exclusion, Fix, Plan, QuoteRequest, QuoteView
from jobs.wire.serving import DeployRequest, EndpointView, ReplicaView, VersionView
from jobs.wire.supply import DeviceView, EnrolmentTokenView, LinkView, NodeView, OfferView, ProviderView, TermsView
from jobs.wire.volumes import VolumeRequest, VolumeVersionView, VolumeView
