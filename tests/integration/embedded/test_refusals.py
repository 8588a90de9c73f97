"""What cannot work is reported in one clear sentence, before anything was started."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from marketplace.config.embedded import folder, postgres
from marketplace.config.embedded.errors import DataFolderBroken, DataFolderInUse
from tests.integration.embedded.marketplaces import fail_to_start, free_port

pytestmark = pytest.mark.own_servers


@pytest.mark.parametrize("offset", [0, 1])
def test_a_taken_port_is_named(short_folder: Path, offset: int) -> None:
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + offset))
        taken.listen()
        output = fail_to_start("--data", str(short_folder / "data"), "--port", str(port))
    assert f"Port {port + offset} on 127.0.0.1" in output
    assert "is taken" in output


def test_a_strangers_folder_is_refused_and_left_alone(short_folder: Path) -> None:
    (short_folder / "thesis.txt").write_text("years of work")
    output = fail_to_start("--data", str(short_folder), "--port", str(free_port()))
    assert "is not Souk's (thesis.txt lies there)" in output
    assert {entry.name for entry in short_folder.iterdir()} <= {"thesis.txt", "souk.lock"}


def test_a_cluster_that_lost_its_files_is_refused_with_the_end_of_the_log(short_folder: Path) -> None:
    data = short_folder / "data"
    opened = folder.open_folder(data)
    postgres.start(data / "postgres", socket_folder=opened.sockets, log=opened.log("postgres")).stop()
    opened.close()
    (data / "postgres" / "global" / "pg_control").unlink()
    output = fail_to_start("--data", str(data), "--port", str(free_port()))
    assert "postgres ended with status" in output
    assert "pg_control" in output


def test_only_one_of_the_two_servers_is_refused(short_folder: Path) -> None:
    output = fail_to_start("--data", str(short_folder / "data"), "--port", str(free_port()), REDIS_URL="redis://x/0")
    assert "both DATABASE_URL and REDIS_URL" in output


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: PostgreSQL runs as another user only then")
def test_a_folder_that_postgresqls_user_cannot_enter_is_refused(short_folder: Path) -> None:
    closed = short_folder / "closed"
    closed.mkdir(mode=0o700)
    output = fail_to_start("--data", str(closed / "data"), "--port", str(free_port()))
    assert f"may not enter {closed}" in output


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    folder.open_folder(tmp_path).close()
    (tmp_path / "souk.json").write_text(json.dumps({"format": 999}))
    with pytest.raises(DataFolderBroken, match="newer Souk"):
        folder.open_folder(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "x"}'])
def test_a_marker_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    folder.open_folder(tmp_path).close()
    (tmp_path / "souk.json").write_text(text)
    with pytest.raises(DataFolderBroken, match="cannot be read"):
        folder.open_folder(tmp_path)


@pytest.mark.parametrize("text", ["", "{", '{"secret_key": "x"}'])
def test_lost_secrets_are_not_quietly_made_anew(tmp_path: Path, text: str) -> None:
    folder.open_folder(tmp_path).close()
    (tmp_path / "secrets.json").write_text(text)
    with pytest.raises(DataFolderBroken, match="stored secrets need it"):
        folder.open_folder(tmp_path)


def test_a_file_instead_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(DataFolderBroken, match="not a folder"):
        folder.open_folder(tmp_path / "data")


def test_two_holders_of_one_folder_are_refused(tmp_path: Path) -> None:
    first = folder.open_folder(tmp_path)
    with pytest.raises(DataFolderInUse):
        folder.open_folder(tmp_path)
    first.close()
    folder.open_folder(tmp_path).close()


def test_a_path_too_long_for_a_socket_is_refused(short_folder: Path) -> None:
    data = short_folder / ("long" * 25)
    assert "longer than 92 characters" in fail_to_start("--data", str(data), "--port", str(free_port()))


def test_root_keeps_its_data_outside_of_its_home() -> None:
    expected = Path("/var/lib/souk") if os.geteuid() == 0 else Path.home() / ".souk"
    assert folder.default_path() == expected
