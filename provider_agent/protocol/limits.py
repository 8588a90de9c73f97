"""Versions, limits and rhythms of the wire: what both sides keep to."""

from __future__ import annotations

from typing import Final

PROTOCOL_VERSION: Final = 1
PROTOCOL_VERSIONS_SPOKEN: Final = (1,)

REQUEST_WINDOW_SECONDS: Final = 60  # how far a signed request may lie from the server's clock
APPEND_BYTES_MAX: Final = 256 * 1024  # one append of logs or events
SYNC_BODY_BYTES_MAX: Final = 1024 * 1024
MESSAGE_CHARACTERS_MAX: Final = 2000
LEASES_PER_NODE_MAX: Final = 256
DEVICES_PER_NODE_MAX: Final = 64
DISK_RESERVE_MIB: Final = 2048  # of a node, left to the agent's journal and logs
MEMORY_RESERVE_MIB: Final = 2048  # of a node, left to the agent and the container engine; of a small one a quarter
LENT_MAX: Final = 64  # shared host folders of one node
OUTPUT_PATTERNS_MAX: Final = 100  # of one job file
SETUP_LINES_MAX: Final = 50  # of one job file
SETUP_CHARACTERS_MAX: Final = 4096  # of one such line
RUNTIME_FEATURES_MAX: Final = 64  # of one node
LABEL_PATTERN: Final = r"^[a-z0-9][a-z0-9._-]{0,62}$"  # names a shared host folder
RECEIPTS_PER_APPEND_MAX: Final = 100
FILES_PER_ARTIFACT_MAX: Final = 20_000

BEAT_SECONDS_LEASED: Final = 5
BEAT_SECONDS_IDLE: Final = 15
MISSES_UNTIL_SUSPECT: Final = 2
MISSES_UNTIL_LOST: Final = 3
LOST_GRACE_SECONDS: Final = 2

HEADER_NODE: Final = "Souk-Node"
HEADER_TIME: Final = "Souk-Time"
HEADER_SIGNATURE: Final = "Souk-Signature"
