"""Alice has ten dollars; Bob has none yet."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from tests.integration.billing.scenes import fund


@pytest.fixture
def alice(db: None) -> UUID:
    return fund(uuid4())


@pytest.fixture
def bob() -> UUID:
    return uuid4()


@pytest.fixture
def job_id() -> UUID:
    return uuid4()
