"""What a program left is copied into the node's cache within its bounds, whatever it left."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from provider_agent.config import DataFolder
from provider_agent.lease.cache import intake, room
from provider_agent.lease.cache.intake import take_entries
from provider_agent.lease.cache.owners import keep_owner, load_owner, owners_in_use
from provider_agent.lease.cache.room import NoRoomError, keep_within, list_entries, make_room
from provider_agent.system.removal import remove_tree
from runtimes.contract import CACHE_USED_NAME, MANIFEST_NAME, NEW_CACHE_NAME
from runtimes.node_cache import NodeCache

ALICE, CAROL = "a" * 32, "c" * 32
KEY, OTHER = "1" * 64, "2" * 64
MIB = 1024**2


class Lease:
    """A lease's folder, with a work folder that its program fills."""

    def __init__(self, folder: DataFolder, owner: str) -> None:
        self.data, self.folder = folder, folder.lease(uuid4())
        self.work = self.folder / "work"
        self.work.mkdir(parents=True)
        keep_owner(self.folder, owner)
        self.cache = NodeCache(folder.cache / owner, self.work)

    def make(self, key: str = KEY, content: bytes = b"tokens", kind: str = "tokens") -> Path:
        made = self.cache.begin(kind, key)
        (made / "data").write_bytes(content)
        self.cache.complete(made)
        return made

    def take(self, bytes_max: int = 100 * MIB) -> list[str]:
        return take_entries(self.data, self.folder, self.work, bytes_max=bytes_max)


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    made = DataFolder(tmp_path / "data")
    made.prepare()
    return made


def kept(folder: DataFolder) -> list[str]:
    return sorted(str(each.folder.relative_to(folder.cache)) for each in list_entries(folder.cache))


def test_an_entry_is_found_by_later_leases_of_its_owner_alone(folder: DataFolder) -> None:
    first = Lease(folder, ALICE)
    first.make()
    assert first.take() == ["kept in this node's cache for later jobs of yours: tokens, 0 MiB"]
    found = Lease(folder, ALICE).cache.find("tokens", KEY)
    assert found is not None
    assert (found.folder / "data").read_bytes() == b"tokens"
    assert found.folder == folder.cache / ALICE / "tokens" / KEY
    assert Lease(folder, CAROL).cache.find("tokens", KEY) is None
    assert [path.stat().st_mode & 0o777 for path in sorted(found.folder.iterdir())] == [0o444, 0o444]


def test_a_lease_without_an_owner_leaves_nothing(folder: DataFolder) -> None:
    lease = Lease(folder, "")
    lease.make()
    assert lease.take() == []
    assert not folder.cache.exists()
    (lease.folder / "cache-owner").write_text("../../../etc")
    assert load_owner(lease.folder) == ""


def test_what_has_no_manifest_is_not_taken(folder: DataFolder) -> None:
    lease = Lease(folder, ALICE)
    (lease.make() / MANIFEST_NAME).unlink()
    assert lease.take() == []
    assert kept(folder) == []


def test_links_and_special_files_are_neither_read_nor_followed(folder: DataFolder, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the provider's")
    lease = Lease(folder, ALICE)
    made = lease.make()
    (made / "link").symlink_to(secret)
    os.mkfifo(made / "pipe")
    (made / "folder").mkdir()
    (made.parent / OTHER).symlink_to(made)
    (lease.work / NEW_CACHE_NAME / "linked").symlink_to(made.parent)
    (lease.work / NEW_CACHE_NAME / "UP").symlink_to("/")
    lease.take()
    assert kept(folder) == [f"{ALICE}/tokens/{KEY}"]
    assert sorted(path.name for path in (folder.cache / ALICE / "tokens" / KEY).iterdir()) == [MANIFEST_NAME, "data"]
    whole = Lease(folder, ALICE)
    whole.work.joinpath(NEW_CACHE_NAME).symlink_to(lease.work / NEW_CACHE_NAME)
    assert whole.take() == [], "nor is the folder itself, where it is a link"


def test_names_that_lead_elsewhere_are_passed_over(folder: DataFolder) -> None:
    lease = Lease(folder, ALICE)
    made = lease.make()
    for wrong in ("short", "1" * 63 + "G", ".hidden"):
        made.rename(made.with_name(wrong))
        made = made.with_name(wrong)
        assert lease.take() == []
    for number in range(intake.FILES_MAX):
        (made / f"more-{number}").touch()
    made.rename(made.with_name(KEY))
    assert lease.take() == [], "and so is one of too many files"


def test_a_file_that_shrinks_while_it_is_copied_leaves_no_entry(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(folder, ALICE)
    data = lease.make(content=b"x" * 100) / "data"
    make_room = room.make_room

    def shrink(*arguments: object, **named: object) -> None:
        os.truncate(data, 10)
        make_room(*arguments, **named)

    monkeypatch.setattr(intake, "make_room", shrink)
    assert lease.take() == ["not kept in this node's cache: tokens of 0 MiB, because data became shorter"]
    assert kept(folder) == []
    assert list(folder.cache.rglob("data")) == []


def test_one_that_was_made_anew_replaces_the_old(folder: DataFolder) -> None:
    first, second, third = (Lease(folder, ALICE) for _ in range(3))
    first.make(content=b"old")
    for lease in (second, third):
        (lease.folder / "cache-owner").unlink()  # forgotten: nobody reads what is there
    first.take()
    first.make(content=b"new")
    first.take()
    assert (folder.cache / ALICE / "tokens" / KEY / "data").read_bytes() == b"new"
    keep_owner(second.folder, ALICE)
    first.make(content=b"newest")
    assert first.take() == []
    assert (folder.cache / ALICE / "tokens" / KEY / "data").read_bytes() == b"new", "another lease may read it"


def test_a_customer_has_half_of_the_cache_and_its_oldest_go_first(folder: DataFolder) -> None:
    lease = Lease(folder, ALICE)
    for number in range(3):
        made = lease.make(key=str(number) * 64, content=b"x" * MIB)
        assert "kept" in lease.take(bytes_max=5 * MIB)[0]
        os.utime(folder.cache / ALICE / "tokens" / made.name, (number + 1, number + 1))
        remove_tree(made)
    assert kept(folder) == [f"{ALICE}/tokens/{each * 64}" for each in "12"]
    lease.make(key="f" * 64, content=b"x" * 3 * MIB)
    why = "it has 3 MiB, and a customer's part of this node's cache is 2 MiB"
    assert lease.take(bytes_max=5 * MIB) == [f"not kept in this node's cache: tokens of 3 MiB, because {why}"]


def test_what_was_used_stays_longer(folder: DataFolder) -> None:
    lease = Lease(folder, ALICE)
    for number in range(2):
        remove_tree(lease.work / NEW_CACHE_NAME)
        lease.make(key=str(number) * 64, content=b"x" * MIB)
        lease.take(bytes_max=5 * MIB)
        os.utime(folder.cache / ALICE / "tokens" / (str(number) * 64), (number + 1, number + 1))
    remove_tree(lease.work / NEW_CACHE_NAME)
    assert lease.cache.find("tokens", "0" * 64) is not None
    assert (lease.work / NEW_CACHE_NAME / CACHE_USED_NAME).read_text() == f"tokens/{'0' * 64}\n"
    lease.make(key="2" * 64, content=b"x" * MIB)
    lease.take(bytes_max=5 * MIB)
    assert kept(folder) == [f"{ALICE}/tokens/{each * 64}" for each in "02"]


def test_what_other_leases_may_read_is_not_removed(folder: DataFolder) -> None:
    lease = Lease(folder, ALICE)
    lease.make(content=b"x" * MIB)
    lease.take()
    Lease(folder, ALICE)
    assert owners_in_use(folder, but=lease.folder) == {ALICE}
    with pytest.raises(NoRoomError, match="in use"):
        make_room(folder.cache, ALICE, MIB, bytes_max=3 * MIB, in_use={ALICE})
    keep_within(folder, bytes_max=0, in_use={ALICE})
    assert kept(folder) == [f"{ALICE}/tokens/{KEY}"]
    keep_within(folder, bytes_max=0, in_use=set())
    assert not folder.cache.exists(), "switched off"


def test_a_full_cache_makes_room_for_another_customer(folder: DataFolder) -> None:
    alice, carol = Lease(folder, ALICE), Lease(folder, CAROL)
    (alice.folder / "cache-owner").unlink()
    for number in range(2):
        make = folder.cache / ALICE / "tokens" / (str(number) * 64)
        make.mkdir(parents=True)
        (make / "data").write_bytes(b"x" * MIB)
        os.utime(make, (number + 1, number + 1))
    carol.make(content=b"x" * MIB)
    carol.take(bytes_max=3 * MIB - 1)
    assert kept(folder) == [f"{ALICE}/tokens/{'1' * 64}", f"{CAROL}/tokens/{KEY}"]


def test_what_a_killed_agent_left_half_made_is_removed(folder: DataFolder) -> None:
    lease = Lease(folder, ALICE)
    forgotten, its_own = (folder.cache / ".arriving" / name for name in (str(uuid4()), lease.folder.name))
    leaving = folder.cache / ALICE / "tokens" / f".{KEY}.leaving"
    for left in (forgotten, its_own, leaving):
        left.mkdir(parents=True)
        (left / "data").write_bytes(b"half")
    assert kept(folder) == []
    keep_within(folder, bytes_max=MIB, in_use={ALICE})
    assert [left.exists() for left in (forgotten, its_own, leaving)] == [False, True, False]
    lease.make()
    lease.take()
    assert not its_own.exists()
    assert kept(folder) == [f"{ALICE}/tokens/{KEY}"]


def test_two_leases_that_end_at_once_leave_one_whole_entry(folder: DataFolder) -> None:
    leases = [Lease(folder, ALICE) for _ in range(4)]
    for lease in leases:
        lease.make(content=b"x" * MIB)
    with ThreadPoolExecutor(len(leases)) as threads:
        lines = [line for taken in threads.map(Lease.take, leases) for line in taken]
    assert all("kept in this node" in line for line in lines)
    assert kept(folder) == [f"{ALICE}/tokens/{KEY}"]
    assert Lease(folder, ALICE).cache.find("tokens", KEY) is not None
    assert list((folder.cache / ".arriving").iterdir()) == []


def test_a_lease_that_began_while_it_was_copied_keeps_what_it_may_read(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, later = Lease(folder, ALICE), Lease(folder, "")
    lease.make(content=b"old")
    lease.take()
    lease.make(content=b"new")
    copy = intake._copy

    def begin(*arguments: Any, **named: Any) -> None:
        copy(*arguments, **named)
        keep_owner(later.folder, ALICE)

    monkeypatch.setattr(intake, "_copy", begin)
    assert lease.take() == []
    assert (folder.cache / ALICE / "tokens" / KEY / "data").read_bytes() == b"old"


def test_looking_for_entries_ends_in_a_million_folders(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = Lease(folder, ALICE)
    for number in range(intake.FOLDERS_MAX):
        (lease.work / NEW_CACHE_NAME / f"a{number:03}").mkdir(parents=True)
    lease.make()
    assert lease.take() == [], "it comes after too many others"
    remove_tree(lease.work / NEW_CACHE_NAME / "a000")
    remove_tree(lease.work / NEW_CACHE_NAME / "a001")
    monkeypatch.setattr(intake, "LOOK_SECONDS_MAX", -1.0)
    assert lease.take() == [], "it comes too late"
    monkeypatch.undo()
    assert "kept" in lease.take()[0]


def test_an_entry_that_goes_meanwhile_is_not_listed(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = Lease(folder, ALICE)
    for key in (KEY, OTHER):
        lease.make(key)
    lease.take()
    size = room._size

    def go(entry: Path) -> int:
        if entry.name == KEY:
            room.remove_entry(entry)
        return size(entry)

    monkeypatch.setattr(room, "_size", go)
    assert kept(folder) == [f"{ALICE}/tokens/{OTHER}"]


def test_copying_ends_when_its_time_is_over(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = Lease(folder, ALICE)
    lease.make()
    monkeypatch.setattr(intake, "COPY_SECONDS_MAX", -1.0)
    began = time.monotonic()
    assert "copying takes more than" in lease.take()[0]
    assert time.monotonic() - began < 60
    assert kept(folder) == []
