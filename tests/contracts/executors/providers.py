"""Bob, whose agent runs programs in containers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from provider_agent.executors.scratch import unmount_scratch
from provider_agent.protocol import LOCAL_IMAGES
from tests.integration.provider_agent.conftest import Bob
from tests.integration.provider_agent.fake_server import FakeServer


@contextmanager
def bob_over(engine_url: str, data: Path, **settings: Any) -> Iterator[Bob]:
    """His node over this engine, with a marketplace of its own that has nothing to complain of in the end."""
    server = FakeServer()
    server.start()
    provider = Bob(server, data)
    settings = {"image_registries": [LOCAL_IMAGES], **settings}  # the test image was built here
    provider.enrol(executor="docker", engine_url=engine_url, isolation="runc", **settings)
    provider.start()
    yield provider
    if provider.process is not None:
        provider.stop(signal.SIGKILL)
    server.stop()
    for lease_id in server.leases:
        unmount_scratch(provider.folder.lease(lease_id))
    assert server.problems == [], "receipts stay gapless, cumulative and signed"
