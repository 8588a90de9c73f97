"""Every message between agent and server, with the receipt and its encoding. The server imports no other package here.

    message.py            the base of every message
    limits.py             versions, limits and intervals of the wire
    bounds.py             how far numbers, moments and texts may go
    node.py               what a node is: devices, facts, terms, enrolment
    desired_settings.py   drain, resume, price, schedule; how the node stands in the market
    load.py               what it measures of itself
    sync.py               reports of leases, and what should run
    assignment.py         one part of an attempt, signed by the server
    gangs.py              the nodes of one attempt, and how their programs reach each other
    node_paths.py         hides a node's paths in messages
    outcomes.py           states of an attempt, and every reason for its end
    appends.py            logs, events and receipts of a lease
    artifacts.py          its checkpoints and outputs
    file_names.py         which names of files they may have
    image_names.py        from which registries a customer's image may come
    money/                receipts and statements of usage, amounts, earnings, payout wallets
    device_checks.py      work that the marketplace demands of a node's devices
    fabric.py             probes of the link between two nodes
    serving.py            the gateways to which a replica is announced
    releases.py           how an agent's release is described, signed and ordered
    signing.py            Ed25519 signatures of requests and assignments
    ethereum.py           signatures under EIP-191 and EIP-712
    install_command.py    the command that makes a computer a node
    backoff.py            how long to wait before a call is repeated

Six kinds of call, all signed by the node's transport key and all harmless to repeat:

    enrol    once                      POST /api/agent/v1/enrol         and at the end /api/agent/v1/retire
    sync     level-triggered           POST /api/agent/v1/sync          what is, answered with what should be
    settings drain, resume, price      POST /api/agent/v1/drain ...     the provider's; GET .../standing, .../earnings
    append   logs, events, receipts,   POST /api/agent/v1/leases/...    by offset or sequence
             artifacts
    check    work that is demanded     POST /api/agent/v1/checks/...    one answer a demand; see device_checks
    link     the link to a peer        POST /api/agent/v1/links/...     one report a side; see fabric

A lease is the unit on the wire: one node's part of one attempt. Versions: the server accepts PROTOCOL_VERSION and
the one before it.
"""

from __future__ import annotations

from provider_agent.protocol import ethereum
from provider_agent.protocol.appends import AppendResponse, ReceiptAck, ReceiptAppend
from provider_agent.protocol.artifacts import (
    PREPARED_BYTES_MAX,
    PREPARED_ENTRIES_MAX,
    PREPARED_MANIFEST_BYTES_MAX,
    ArtifactBegin,
    ArtifactComplete,
    ArtifactDownloads,
    ArtifactFile,
    ArtifactUploads,
    Etags,
    FileUpload,
    RemoteFile,
    ShippedKind,
    UploadPart,
    prepared_mistake,
)
from provider_agent.protocol.assignment import (
    CACHE_FEATURE,
    CACHE_OWNER_PATTERN,
    PREPARED_FEATURE,
    Assignment,
    CheckpointPolicy,
    Program,
    SignedAssignment,
)
from provider_agent.protocol.bounds import (
    COUNT_MAX,
    FIGURE_MAX,
    MOMENT_FIRST,
    MOMENT_LAST,
    PRICE_USD_MICROS_MAX,
    SMALL_COUNT_MAX,
    Count,
    Moment,
    SmallCount,
    Whole,
)
from provider_agent.protocol.desired_settings import (
    AWAY_MAX,
    HOURS_MAX,
    MINUTES_PER_DAY,
    REASON_CHARACTERS_MAX,
    Away,
    DrainRequest,
    NodeStanding,
    PriceRequest,
    ResumeRequest,
    Schedule,
    WeeklyHours,
)
from provider_agent.protocol.device_checks import (
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
from provider_agent.protocol.fabric import (
    FEATURE_LINKS,
    LINK_WHY_CHARACTERS_MAX,
    PROBE_PORT_FIRST,
    PROBE_PORT_LAST,
    PROBE_SECRET_BYTES,
    LinkDemand,
    LinkReport,
)
from provider_agent.protocol.file_names import PATH_CHARACTERS_MAX, PATH_DEPTH_MAX, file_name_mistake
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
from provider_agent.protocol.image_names import (
    LOCAL_IMAGES,
    PUBLIC_REGISTRIES,
    REGISTRIES_MAX,
    REGISTRY_PATTERN,
    host_of,
    is_allowed_registry,
    is_image_name,
    registry_of,
    untagged,
)
from provider_agent.protocol.install_command import install_command
from provider_agent.protocol.limits import (
    APPEND_BYTES_MAX,
    BEAT_SECONDS_IDLE,
    BEAT_SECONDS_LEASED,
    DEVICES_PER_NODE_MAX,
    DISK_RESERVE_MIB,
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
from provider_agent.protocol.load import Load
from provider_agent.protocol.message import Message
from provider_agent.protocol.money.amounts import parse_units, show_units
from provider_agent.protocol.money.earnings import Earnings
from provider_agent.protocol.money.payment import PaymentTerms, ReceiptParties
from provider_agent.protocol.money.receipts import (
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
from provider_agent.protocol.money.wallets import payout_wallet_text, sign_payout_wallet
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
    leases_memory_mib,
)
from provider_agent.protocol.node_paths import without_node_paths
from provider_agent.protocol.outcomes import (
    ATTEMPT_ENDS,
    ATTEMPT_TRANSITIONS,
    REASONS,
    SERVER_ALONE,
    AttemptState,
    Billable,
    Fault,
    Outcome,
    Reason,
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
from provider_agent.protocol.sync import Desired, LeaseReport, SyncRequest, SyncResponse
