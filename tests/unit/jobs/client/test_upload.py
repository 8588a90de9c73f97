"""An upload to a store that does not answer as it should ends with what is wrong and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.client import upload
from jobs.client.errors import SoukApiError, TransferFailed
from jobs.client.gather import local_file
from jobs.client.sdk import Souk
from jobs.client.transport import ATTEMPTS_MAX
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


def test_a_server_that_still_puts_the_parts_together_is_asked_again_up_to_a_limit(
    souk: Souk, market: FakeMarketplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.bin").write_bytes(b"x" * 20)
    files = [local_file("data/a.bin", tmp_path / "a.bin")]
    market.busy = 2 * ATTEMPTS_MAX
    upload_files(souk, files)
    assert market.busy == 0
    assert list(market.etags) == ["data/a.bin"]
    monkeypatch.setattr(upload, "BUSY_SECONDS_MAX", 0.0)
    market.busy = 2 * ATTEMPTS_MAX
    with pytest.raises(SoukApiError) as caught:
        upload_files(souk, files)
    assert (caught.value.code, market.busy) == ("upload_busy", ATTEMPTS_MAX)
