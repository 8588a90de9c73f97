"""Every message between agent and server, with the receipt and its encoding. The only package the server imports here.

Six kinds of call, all signed by the node's transport key and all harmless to repeat:

    enrol    once                      POST /api/agent/v1/enrol         and at the end /api/agent/v1/retire
    sync     level-triggered           POST /api/agent/v1/sync          the agent says what is, the server what should
    wish     drain, resume, price      POST /api/agent/v1/drain ...     the provider's; GET .../standing, .../earnings
    append   logs, events, receipts,   POST /api/agent/v1/leases/...    by offset or sequence
             artifacts
    check    work that is demanded     POST /api/agent/v1/checks/...    one answer a demand; see checks.py
    link     the way to a peer         POST /api/agent/v1/links/...     one report a side; see fabric.py

A lease is the unit on the wire: one node's part of one attempt. Versions: the server speaks PROTOCOL_VERSION and the
one before it.
"""

from __future__ import annotations

from provider_agent.protocol import ethereum
from provider_agent.protocol.amounts import parse_units, show_units
from provider_agent.protocol.appends import (
    AppendResponse,
    ArtifactBegin,
    ArtifactComplete,
    ArtifactDownloads,
    ArtifactFile,
    ArtifactUploads,
    FileUpload,
    ReceiptAck,
    ReceiptAppend,
    RemoteFile,
    UploadPart,
)
from provider_agent.protocol.care import (
    AWAY_MAX,
    HOURS_MAX,
    MINUTES_PER_DAY,
    PRICE_USD_MICROS_MAX,
    REASON_CHARACTERS_MAX,
    Away,
    DrainRequest,
    Earnings,
    Load,
    NodeStanding,
    PriceRequest,
    ResumeRequest,
    Schedule,
    WeeklyHours,
)
from provider_agent.protocol.checks import (
    FEATURE_CHECKS,
    HEADER_FEATURES,
    CheckCommit,
    CheckOpen,
    CheckRecall,
    CheckReveal,
    CheckTask,
    CheckVerdict,
    DeviceCommitment,
    DeviceRecall,
    DeviceTask,
    Finding,
    RecallStep,
)
from provider_agent.protocol.escrow import (
    ANY_PROVIDER,
    HoldAuthorization,
    ReceiptKeyDelegation,
    SignedDelegation,
    SignedHoldAuthorization,
    authorization_digest,
    delegation_digest,
    is_signed_by_customer,
    is_signed_by_provider,
    provider_proof,
    providers_tree,
    sign_authorization,
    sign_delegation,
)
from provider_agent.protocol.fabric import (
    FEATURE_LINKS,
    LINK_WHY_CHARACTERS_MAX,
    PROBE_PORT_FIRST,
    PROBE_PORT_LAST,
    PROBE_SECRET_BYTES,
    LinkDemand,
    LinkReport,
)
from provider_agent.protocol.gangs import (
    GANG_NETWORK,
    GANG_PORT_FIRST,
    GANG_PORTS,
    GangKind,
    GangMember,
    GangPlace,
    OverlayKind,
    gang_address,
)
from provider_agent.protocol.joining import install_line
from provider_agent.protocol.limits import (
    APPEND_BYTES_MAX,
    BEAT_SECONDS_IDLE,
    BEAT_SECONDS_LEASED,
    DEVICES_PER_NODE_MAX,
    FILES_PER_ARTIFACT_MAX,
    HEADER_NODE,
    HEADER_SIGNATURE,
    HEADER_TIME,
    LABEL_PATTERN,
    LEASES_PER_NODE_MAX,
    LENT_MAX,
    LOST_GRACE_SECONDS,
    MESSAGE_CHARACTERS_MAX,
    MISSES_UNTIL_LOST,
    MISSES_UNTIL_SUSPECT,
    PROTOCOL_VERSION,
    PROTOCOL_VERSIONS_SPOKEN,
    RECEIPTS_PER_APPEND_MAX,
    REQUEST_WINDOW_SECONDS,
    SYNC_BODY_BYTES_MAX,
)
from provider_agent.protocol.message import Message
from provider_agent.protocol.node import (
    FAULT_CHARACTERS_MAX,
    DeviceFacts,
    DeviceKind,
    DeviceMeasurement,
    EnrolRequest,
    EnrolResponse,
    MeasurementRequest,
    NodeFacts,
    OfferTerms,
)
from provider_agent.protocol.outcomes import (
    ATTEMPT_ENDS,
    ATTEMPT_TRANSITIONS,
    REASONS,
    AttemptState,
    Billable,
    Fault,
    Outcome,
    Reason,
)
from provider_agent.protocol.payment import PaymentTerms, ReceiptParties
from provider_agent.protocol.receipts import (
    ADDRESS_PATTERN,
    HASH_PATTERN,
    MS_PER_HOUR,
    NO_CONTRACT,
    RECEIPT_TYPES,
    ZERO_ADDRESS,
    ZERO_HASH,
    ReceiptDomain,
    SignedReceipt,
    UsageReceipt,
    charge,
    id_bytes32,
    payable_ms,
    receipt_digest,
    recover_receipt_signer,
    sign_receipt,
)
from provider_agent.protocol.releases import (
    FEATURE_UPDATES,
    MANIFEST_BYTES_MAX,
    RELEASE_KIND,
    RELEASE_PREFIX,
    ROLLBACK_CHARACTERS_MAX,
    VERSION_CHARACTERS_MAX,
    VERSION_PATTERN,
    WHEEL_BYTES_MAX,
    ReleaseManifest,
    Rollback,
    UpdateFacts,
    UpdateOrder,
    version_key,
)
from provider_agent.protocol.serving import (
    FEATURE_GATEWAYS,
    GATEWAYS_MAX,
    GatewayList,
    GatewayPlace,
    ServePlace,
    SignedGateways,
)
from provider_agent.protocol.signing import (
    enrol_proof_bytes,
    export_bytes,
    sign_assignment,
    sign_bytes,
    sign_gateways,
    sign_request,
    string_to_sign,
    verify_assignment,
    verify_bytes,
    verify_gateways,
    verify_request,
)
from provider_agent.protocol.wallets import payout_wallet_text, sign_payout_wallet
from provider_agent.protocol.work import (
    Assignment,
    CheckpointPolicy,
    Desired,
    LeaseReport,
    Program,
    SignedAssignment,
    SyncRequest,
    SyncResponse,
)
