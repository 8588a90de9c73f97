"""An upload to a store that does not answer as it should ends with what is wrong and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.client.errors import TransferFailed
from jobs.client.gather import local_file
from jobs.client.sdk import Souk
from jobs.client.upload import upload_files
from tests.unit.jobs.client.fake_server import FakeMarketplace


@pytest.mark.parametrize("size", [3, 20])
def test_a_store_whose_answer_lacks_the_etag_is_named_with_the_file(
    souk: Souk, market: FakeMarketplace, tmp_path: Path, size: int
) -> None:
    market.has_etags = False
    (tmp_path / "a.bin").write_bytes(b"x" * size)
    with pytest.raises(TransferFailed, match=r"127\.0\.0\.1 took data/a\.bin and answered without an ETag"):
        upload_files(souk, [local_file("data/a.bin", tmp_path / "a.bin")])
