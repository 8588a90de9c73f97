"""Which names of files prepared data may have."""

from __future__ import annotations

import pytest

from provider_agent.protocol import (
    prepared_mistake,
)
from runtimes.contract import MANIFEST_NAME
from tests.unit.provider_agent.prepared.leases import KEY, OTHER


@pytest.mark.parametrize(
    "paths",
    [
        [],
        ["x"],
        [f"tokens/{KEY}/a"],
        [f"environment/{KEY}/{MANIFEST_NAME}"],
        [f"tokens/{KEY[1:]}/{MANIFEST_NAME}"],
        [f"tokens/{KEY}/{MANIFEST_NAME}", f"tokens/{KEY}/deeper/a"],
        [f"tokens/{KEY}/{MANIFEST_NAME}", f"tokens/{KEY}/.."],
        [f"tokens/{KEY}/{MANIFEST_NAME}", f"tokens/{KEY}/"],
        [f"tokens/{KEY}/{MANIFEST_NAME}", f"tokens/{KEY}/a.partial"],
        [f"tokens/{KEY}/{MANIFEST_NAME}", *(f"tokens/{KEY}/{n}" for n in range(16))],
        [f"tokens/{number:064x}/{MANIFEST_NAME}" for number in range(5)],
    ],
)
def test_other_names_are_no_prepared_data(paths: list[str]) -> None:
    assert prepared_mistake(paths)


def test_tokens_and_a_tokenizer_are_prepared_data() -> None:
    names = [f"tokens/{KEY}/{MANIFEST_NAME}", f"tokens/{KEY}/tokens.int32", f"tokenizer/{OTHER}/{MANIFEST_NAME}"]
    assert prepared_mistake(names) is None
