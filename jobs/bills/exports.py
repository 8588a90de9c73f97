"""Bills and earnings as files that prove themselves: with the marketplace's signature over their exact content."""

from __future__ import annotations

import json
from typing import Any, Literal

from jobs.wire import SignedExport, Wire
from marketplace.foundation import signing
from provider_agent.protocol import export_bytes


def sign_export(kind: Literal["souk-bill-1", "souk-earnings-1"], view: Wire) -> SignedExport:
    """The view as JSON, signed; whoever has the file and the public key needs nothing else of us."""
    body: dict[str, Any] = json.loads(view.model_dump_json())
    return SignedExport(
        format=kind,
        server_public_key=signing.server_public_key_hex(),
        signature=signing.sign(export_bytes(kind, body)),
        body=body,
    )
