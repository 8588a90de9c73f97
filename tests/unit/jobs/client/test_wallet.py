"""A wallet's key in a file: only one that nobody else can read, and that is a key, is taken; it is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.client.commands.options import FEE_COINS_MAX
from jobs.client.errors import UsageMistake
from jobs.client.settings import write_private
from jobs.client.wallet import key_file
from jobs.client.wallet.chain_wallet import show_coins
from jobs.client.wallet.key_file import COIN, FEE_MAX, read_wallet, require_fee

SECRET = "4f" * 32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "wallet.key"
    file.write_text(SECRET)
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("text", [SECRET, "0x" + SECRET, f"\n {SECRET.upper()}\r\n"])
def test_a_key_is_read_and_not_shown(file: Path, text: str) -> None:
    file.write_text(text)
    found = read_wallet(file)
    assert found.address.startswith("0x") and SECRET not in repr(found).lower()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o677])
def test_a_key_that_others_can_reach_is_not_read(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(UsageMistake, match="chmod 600"):
        read_wallet(file)


@pytest.mark.parametrize(
    "text",
    ["", SECRET[:-1], SECRET + "0", "0x", "test test test junk", '{"crypto": {}}', "00" * 32, "ff" * 32, "\u0664" * 64],
)
def test_what_is_no_key_is_refused_without_being_repeated(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageMistake) as refused:
        read_wallet(file)
    assert not text or text not in refused.value.message
    assert "no private key" in refused.value.message


def test_a_file_of_any_size_is_read_to_its_bound_only(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with file.open("r+b") as opened:
        opened.truncate(1 << 40)  # takes no disk space, and no memory would hold it
    with pytest.raises(UsageMistake, match="no private key"):
        read_wallet(file)
    monkeypatch.setattr(key_file, "OTHERS", 0)
    with pytest.raises(UsageMistake, match="no private key"):
        read_wallet(Path("/dev/zero"))


def test_missing_files_and_no_files_are_reported(file: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path, file / "below"):
        with pytest.raises(UsageMistake, match="cannot be read"):
            read_wallet(path)


def test_a_new_private_file_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "one.json"
    write_private(path, "first", is_new=True)
    with pytest.raises(FileExistsError):
        write_private(path, "second", is_new=True)
    assert path.read_text() == "first"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["one.json"], "nothing half is left"


def test_a_fee_is_an_amount_of_coins() -> None:
    assert require_fee(FEE_COINS_MAX) == FEE_MAX == COIN // 20
    for text in ("0", "-1", "x", "", "0.0000000000000000001", "1e2"):
        with pytest.raises(UsageMistake, match="--max-fee"):
            require_fee(text)


@pytest.mark.parametrize(
    ("wei", "shown"),
    [(0, "0"), (COIN, "1"), (COIN // 20, "0.05"), (123_456 * 10**9, "0.000123"), (1, "0." + "0" * 17 + "1")],
)
def test_coins_are_shown_with_three_digits(wei: int, shown: str) -> None:
    assert float(show_coins(wei)) == float(shown)
    assert "E" not in show_coins(wei)
