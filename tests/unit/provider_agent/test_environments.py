"""Which environments are the same, what an archive holds, and what of a lease's archive is taken."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from provider_agent.config import DataFolder
from provider_agent.executors.base import log_path
from provider_agent.lease.cache.environments import archive_path, keep_key, read_outcome, take_environment
from provider_agent.lease.cache.intake import find_left
from provider_agent.lease.cache.owners import keep_owner
from provider_agent.lease.dependencies import packing
from provider_agent.lease.dependencies.environments import (
    OPTION,
    REQUIREMENT,
    NotKeptError,
    device_facts,
    environment_key,
    logical_lines,
)
from provider_agent.protocol import DeviceFacts, DeviceKind

ALICE, KEY, MIB = "a" * 32, "1" * 64, 1024**2
LOCK = '[[package]]\nname = "mine"\nsource = { editable = "." }\n[[package]]\nname = "toy"\nsource = { %s }\n'
REGISTRY, HASHED = 'registry = "https://one/simple"', '{ url = "https://one/toy", hash = "sha256:00" }'
SECONDS_MAX = 20  # of what takes milliseconds where it is linear in the text, and minutes where it is not


def key_of(
    work: Path,
    text: str = "toy==1\n",
    name: str = "requirements.txt",
    *,
    base: str = "3.11",
    devices: Sequence[Sequence[str]] = (),
    **env: str,
) -> str:
    (work / "input").mkdir(parents=True, exist_ok=True)
    (work / "input" / name).write_text(text)
    return environment_key(work, name, env, base=base, devices=devices)


def device(index: int, model: str, **details: str) -> DeviceFacts:
    kind = DeviceKind.GPU
    return DeviceFacts(uuid=f"GPU-{index}", index=index, kind=kind, model=model, memory_mib=1, details=dict(details))


def packed_line(content: bytes) -> bytes:
    return b"[souk] environment of 3 packages packed: sha256 " + hashlib.sha256(content).hexdigest().encode() + b"\n"


class Lease:
    """A lease's folder with a key, an archive and a log."""

    def __init__(self, root: Path, *, log: bytes, content: bytes = b"packages", key: str = KEY) -> None:
        self.data = DataFolder(root / "data")
        self.data.prepare()
        self.folder = self.data.lease(uuid4())
        self.work = self.folder / "work"
        self.archive = self.work / archive_path(KEY)
        self.archive.parent.mkdir(parents=True)
        self.archive.write_bytes(content)
        keep_owner(self.folder, ALICE)
        keep_key(self.folder, key)
        log_path(self.folder).write_bytes(log)

    def take(self, bytes_max: int = 100 * MIB) -> list[str]:
        return take_environment(self.data, self.folder, self.work, bytes_max=bytes_max)

    def kept(self) -> list[str]:
        return sorted(path.relative_to(self.data.cache).as_posix() for path in self.data.cache.glob("[!.]*/*/*/*"))


# --- the key


def test_the_key_changes_with_everything_that_decides_what_is_installed(tmp_path: Path) -> None:
    work = tmp_path / "work"
    same = key_of(work)
    assert same == key_of(work)
    others = [
        key_of(work, "toy==2\n"),
        key_of(work, base="3.12"),
        key_of(work, PIP_INDEX_URL="https://one/simple"),
        key_of(work, PIP_INDEX_URL="https://other/simple"),
        key_of(work, BUILD_FLAGS="-O2"),
        key_of(work, devices=device_facts([device(0, "A")])),
        key_of(work, devices=device_facts([device(0, "B")])),
        key_of(work, devices=device_facts([device(0, "A"), device(1, "B")])),
        key_of(work, devices=device_facts([device(0, "A", driver="550.1")])),
        key_of(work, LOCK % REGISTRY + f"wheels = [{HASHED}]\n", "uv.lock"),
    ]
    (work / "input" / "wheels").mkdir()
    (work / "input" / "wheels" / "toy.whl").write_text("one")
    others.append(key_of(work))
    (work / "input" / "wheels" / "toy.whl").write_text("two")
    others.append(key_of(work))
    (work / "input" / "pyproject.toml").write_text("[project]\n")
    others.append(key_of(work, LOCK % REGISTRY + f"wheels = [{HASHED}]\n", "uv.lock"))
    assert len({same, *others}) == 1 + len(others)


@pytest.mark.parametrize(
    "text",
    [
        "toy == 1.0 ; python_version >= '3.8'  # a comment\n# another\n\nother[extra]>=1,<2\n",
        "--index-url https://one/simple\n--extra-index-url=https://two/simple\n-i https://one\n--no-binary toy\ntoy\n",
        "toy==1 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n",
        "toy==1" + " --hash=sha256:" + 50 * ("0" * 64 + " --hash sha256:") + "00\n",
        "# of no encoding\n\n# coding: latin-1 is a comment here\ntoy\n",
    ],
)
def test_requirements_that_name_packages_alone_have_a_key(tmp_path: Path, text: str) -> None:
    assert key_of(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "-r other.txt\n",
        "-cconstraints.txt\n",
        "-e .\n",
        "./input/toy\n",
        "input/toy\n",
        "toy-1.0-py3-none-any.whl\n",
        "toy.tar.gz ; python_version > '3'\n",
        "toy @ file:///work/input/toy\n",
        "toy @ git+https://example.com/toy@main\n",
        "https://example.com/toy.whl\n",
        "--find-links input/\n",
        "--index-url file:///work/input\n",
        "--index-url https://${TOKEN}@one/simple\n",
        "toy==1 \\\n -r other.txt\n",
        "# a comment \\\n-r other.txt\n",
        "toy \\\n# a comment \\\n-r other.txt\n",
        "toy.w\\\nhl\n",
        "\\-r other.txt \\\n",
        "foo=1.zip\n",
        "foo bar.zip\n",
        "foo.ZIP[extra]\n",
        "file:toy\n",
        "toy --hash=sha256:00-r other.txt\n",
        "toy --hash\n",
        "--no-binary toy -r other.txt\n",
        "--no-binary toy '-r' other.txt\n",
    ],
)
def test_requirements_that_name_anything_else_have_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(NotKeptError):
        key_of(tmp_path, f"first==1\n{text}")


@pytest.mark.parametrize("text", ["# coding: utf-7\ntoy\n", "toy\n#-*- coding=utf-7 -*-\n"])
def test_requirements_in_an_encoding_of_their_own_have_no_key(tmp_path: Path, text: str) -> None:
    with pytest.raises(NotKeptError, match="encoding"):
        key_of(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "a" * 50_000 + "/",
        "a" + " " * 50_000 + "b/",
        "a " * 25_000 + "/",
        "a" + " --hash" * 7_000,
        "a" + " --hash=" + "0" * 50_000,
        "--no-binary" + " =" * 25_000 + "/",
        "-i" + " " * 50_000 + "/",
        "a" + " " * 50_000 + "#/\n/",
        "a\\\n" * 25_000 + "/",
        "#" * 50_000 + "\n/",
        "a" * 16 * MIB,
    ],
    ids=range(11),
)
def test_hostile_lines_are_refused_at_once(tmp_path: Path, text: str) -> None:
    began = time.monotonic()
    with pytest.raises(NotKeptError):
        key_of(tmp_path, text)
    assert time.monotonic() - began < SECONDS_MAX


@pytest.mark.parametrize("text", ["a" * 50_000 + "/", "a" + " " * 50_000 + "/", "--no-binary " + "=" * 50_000 + "/"])
def test_patterns_are_linear_in_what_they_refuse(text: str) -> None:
    began = time.monotonic()
    assert REQUIREMENT.fullmatch(text) is None
    assert OPTION.fullmatch(text) is None
    assert time.monotonic() - began < SECONDS_MAX


def test_files_and_lines_that_are_too_long_have_no_key(tmp_path: Path) -> None:
    assert key_of(tmp_path, "a" * 1000)
    with pytest.raises(NotKeptError, match="more than 1000 characters"):
        key_of(tmp_path, "a" * 1001)
    assert key_of(tmp_path, "toy\n" + "#" * (MIB - 4))
    with pytest.raises(NotKeptError, match="more than 1 MiB"):
        key_of(tmp_path, "toy\n" + "#" * (MIB - 3))


@pytest.mark.parametrize(
    "text",
    [
        "# a comment \\\n-r other.txt\n",
        "toy \\\n# a comment \\\n-r other.txt\n",
        "toy \\\n  # a comment\n-r other.txt",
        "to\\\ny==1 \\\r\n  --hash=sha256:00  # a comment\r\nother#1\n\n",
        "\\\\toy\\\\\nother\\\n\\\n\nlast \\",
        "a\x0bb\x0cc\x1cd\x85e\u2028f\rg\r\n\th\t#\ti \\ \nj\u00a0#k\n",
        "#\\\n#\\\n \\\n#\\\nlast",
    ],
)
def test_lines_are_those_that_pip_reads(text: str) -> None:
    pip = pytest.importorskip("pip._internal.req.req_file")
    assert list(logical_lines(text.encode())) == [line for _, line in pip.preprocess(text)]


@pytest.mark.parametrize(
    "package",
    [
        'path = "x.whl" }\n#',
        'url = "https://one/toy.whl" }\n#',
        'path = "x.whl" }\nwheels = [{ filename = "x.whl" }]\n#',
        REGISTRY + " }\n#",
        REGISTRY + f' }}\nwheels = [{HASHED}, {{ url = "https://one/other" }}]\n#',
        REGISTRY + f' }}\nwheels = [{HASHED}]\nsdist = {{ url = "https://one/sdist" }}\n#',
        REGISTRY + ' }\nsdist = { url = "https://one/sdist", hash = "" }\n#',
        'git = "https://example.com/toy?rev=main" }\n#',
    ],
)
def test_a_lock_with_files_without_a_hash_has_no_key(tmp_path: Path, package: str) -> None:
    with pytest.raises(NotKeptError, match="without a hash"):
        key_of(tmp_path, LOCK % package, "uv.lock")


@pytest.mark.parametrize(
    "package",
    [
        REGISTRY + f" }}\nsdist = {HASHED}\nwheels = [{HASHED}]\n#",
        f'path = "x.whl" }}\nwheels = [{HASHED}]\n#',
        f'git = "https://example.com/toy?rev=main#{"0" * 40}" }}\n#',
    ],
)
def test_a_lock_with_a_hash_of_every_file_has_a_key(tmp_path: Path, package: str) -> None:
    assert key_of(tmp_path, LOCK % package, "uv.lock")


def test_devices_that_are_alike_count_once(tmp_path: Path) -> None:
    assert device_facts([device(0, "A"), device(1, "A", serial="1")]) == device_facts([device(2, "A")])


@pytest.mark.parametrize(
    "source", ['editable = "../other"', 'directory = "lib"', 'registry = "wheels"', "registry = 1", 'x = "']
)
def test_a_lock_with_folders_in_it_has_no_key(tmp_path: Path, source: str) -> None:
    with pytest.raises(NotKeptError):
        key_of(tmp_path, LOCK % source, "uv.lock")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PIP_CONSTRAINT", "c.txt"),
        ("UV_CONFIG_FILE", "uv.toml"),
        ("XDG_CONFIG_HOME", "input"),
        ("HOME", "input"),
        ("LD_PRELOAD", "input/evil.so"),
        ("PYTHONPATH", "input"),
        ("PATH", "input/bin"),
        ("PIP_INDEX_URL", "input/simple"),
        ("UV_INDEX", "mine=input/simple"),
    ],
)
def test_settings_that_lie_in_other_files_have_no_key(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(NotKeptError):
        key_of(tmp_path, **{name: value})


def test_an_unknown_interpreter_has_no_key(tmp_path: Path) -> None:
    with pytest.raises(NotKeptError):
        key_of(tmp_path, base="")


# --- the archive


def make_environment(root: Path) -> Path:
    """As venv and pip make one."""
    site = root / "lib" / "python3.11" / "site-packages"
    for folder in (root / "bin", site / "toy-1.dist-info", site / "pip-1.dist-info"):
        folder.mkdir(parents=True)
    (root / "bin" / "python3").symlink_to(sys.executable)
    (root / "lib64").symlink_to("lib")
    (root / "pyvenv.cfg").write_text("home = here\n")
    (root / "bin" / "toy").write_text(f"#!{root}/bin/python3\nprint('toy')\n")
    (root / "bin" / "toy").chmod(0o755)
    (site / "toy.py").write_text("WORD = 'toy'\n")
    (site / "toy.bin").write_bytes(b"\0" + os.fsencode(root))
    (site / packing.BASE_PATHS_NAME).write_text("of this environment")
    for name in ("toy", "pip"):
        (site / f"{name}-1.dist-info" / "METADATA").write_text("Name: x\n")
    os.utime(site / "toy.py", (1_700_000_000, 1_700_000_000))
    return root


def make_entry(environment: Path, entry: Path) -> str:
    """The entry that the agent makes of what is packed; the line of the log."""
    line = packing.pack(environment, entry / packing.ARCHIVE_NAME, 100 * MIB)
    sha256 = line.rpartition(" ")[2]
    manifest = f'{{"files": [{{"path": "{packing.ARCHIVE_NAME}", "sha256": "{sha256}"}}]}}'
    (entry / packing.MANIFEST_NAME).write_text(manifest)
    return line


def test_an_environment_is_the_same_in_another_folder(tmp_path: Path) -> None:
    old, new = make_environment(tmp_path / "old"), tmp_path / "new"
    assert make_entry(old, tmp_path / "entry").startswith("environment of 1 package packed: sha256 ")
    (new / "bin").mkdir(parents=True)
    (new / "bin" / "toy").symlink_to("/nowhere")
    assert packing.unpack(tmp_path / "entry", new).startswith("environment of 1 package found on this node (")
    site = new / "lib" / "python3.11" / "site-packages"
    assert (new / "bin" / "toy").read_text() == f"#!{new}/bin/python3\nprint('toy')\n"
    assert os.access(new / "bin" / "toy", os.X_OK)
    assert (site / "toy.py").stat().st_mtime == 1_700_000_000
    assert (site / "toy.bin").read_bytes() == b"\0" + os.fsencode(old), "no text: it is as it was"
    absent = [new / "pyvenv.cfg", new / "lib64", new / "bin" / "python3", site / packing.BASE_PATHS_NAME]
    assert not any(os.path.lexists(path) for path in absent)


def test_what_differs_from_its_digest_is_not_unpacked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_entry(make_environment(tmp_path / "old"), tmp_path / "entry")
    with (tmp_path / "entry" / packing.ARCHIVE_NAME).open("ab") as out:
        out.write(b"more")
    words = ["unpack", str(tmp_path / "entry"), str(tmp_path / "new")]
    assert packing.main(words) == packing.NOT_DONE
    assert not (tmp_path / "new").exists()
    assert "[souk] the environment kept on this node is not used: its digest" in capsys.readouterr().out


def test_what_cannot_be_unpacked_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_entry(make_environment(tmp_path / "old"), tmp_path / "entry")

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "utime", fail)
    with pytest.raises(OSError, match="full"):
        packing.unpack(tmp_path / "entry", tmp_path / "new")
    assert [path for path in (tmp_path / "new").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("what", ["a link", "too large"])
def test_what_cannot_be_packed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    environment = make_environment(tmp_path / "old")
    if what == "a link":
        (environment / "lib" / "link").symlink_to("/etc")
    words = ["pack", str(environment), str(tmp_path / "target"), "10" if what == "too large" else "100000000"]
    assert packing.main(words) == packing.NOT_DONE
    assert capsys.readouterr().out.startswith("[souk] environment not packed: ")
    assert not (tmp_path / "target").exists()


def make_new(root: Path) -> Path:
    """As the launcher makes one, with a pip that is older than that of make_environment."""
    site = root / "lib" / "python3.11" / "site-packages"
    (site / "pip-0.dist-info").mkdir(parents=True)
    (site / "pip").mkdir()
    (site / "pip" / "old.py").touch()
    (site / packing.BASE_PATHS_NAME).write_text("of the new one")
    return site


def test_nothing_of_an_older_pip_is_left(tmp_path: Path) -> None:
    old = make_environment(tmp_path / "old")
    package = old / "lib" / "python3.11" / "site-packages" / "pip"
    package.mkdir()
    (package / "new.py").touch()
    make_entry(old, tmp_path / "entry")
    site = make_new(tmp_path / "new")
    packing.unpack(tmp_path / "entry", tmp_path / "new")
    assert sorted(path.name for path in site.glob("*pip*")) == ["pip", "pip-1.dist-info"]
    assert [path.name for path in (site / "pip").iterdir()] == ["new.py"]
    assert (site / packing.BASE_PATHS_NAME).read_text() == "of the new one"
    assert [path.name for path in site.parent.iterdir()] == ["site-packages"]


def test_an_archive_without_pip_leaves_the_one_that_was_there(tmp_path: Path) -> None:
    make_entry(make_environment(tmp_path / "old"), tmp_path / "entry")
    site = make_new(tmp_path / "new")
    with pytest.raises(packing.NotUsableError, match="no pip"):
        packing.unpack(tmp_path / "entry", tmp_path / "new")
    assert (site / "pip" / "old.py").is_file()
    assert (site / "pip-0.dist-info").is_dir()
    assert not (site / "toy.py").exists()
    assert [path.name for path in site.parent.iterdir()] == ["site-packages"]


# --- what is taken


def test_an_archive_is_taken_by_the_digest_in_the_log(tmp_path: Path) -> None:
    lease = Lease(tmp_path, log=b"Collecting toy\n" + packed_line(b"packages") + b"of the command\n")
    said = "kept in this node's cache for later jobs of yours: environment of 3 packages, 0 MiB"
    before = os.umask(0o077)  # as the agent has it
    try:
        assert lease.take() == [said]
    finally:
        os.umask(before)
    assert [(lease.data.cache / path).stat().st_mode & 0o777 for path in lease.kept()] == [0o444, 0o444]
    below = f"{ALICE}/environment/{KEY}"
    assert lease.kept() == [f"{below}/MANIFEST.json", f"{below}/environment.tar"]


@pytest.mark.parametrize(
    "log",
    [
        b"",
        packed_line(b"other") + packed_line(b"packages"),
        b"[souk] environment of 3 packages found on this node (0.1 s)\n" + packed_line(b"packages"),
        b"[souk] environment not packed: OSError\n" + packed_line(b"packages"),
        b"x" + packed_line(b"packages"),
    ],
)
def test_nothing_is_taken_that_the_first_line_of_the_log_does_not_name(tmp_path: Path, log: bytes) -> None:
    lease = Lease(tmp_path, log=log)
    assert not any("kept in this node's cache for later" in line for line in lease.take())
    assert lease.kept() == []


def test_nothing_is_taken_without_a_key_or_through_a_link(tmp_path: Path) -> None:
    assert Lease(tmp_path / "one", log=packed_line(b"packages"), key="../../x").take() == []
    lease = Lease(tmp_path / "two", log=packed_line(b"the provider's"))
    (tmp_path / "secret").write_bytes(b"the provider's")
    lease.archive.unlink()
    lease.archive.symlink_to(tmp_path / "secret")
    assert lease.take() == []
    assert lease.kept() == []


def test_an_environment_fits_the_customers_part_of_the_cache_or_is_not_kept(tmp_path: Path) -> None:
    content = b"x" * MIB
    lease = Lease(tmp_path, log=packed_line(content), content=content)
    [line] = lease.take(bytes_max=MIB)
    assert line.startswith("environment not kept in this node's cache: it has 1 MiB, and a customer's part")
    assert lease.kept() == []


def test_one_that_was_used_goes_later(tmp_path: Path) -> None:
    lease = Lease(tmp_path, log=b"[souk] environment of 3 packages found on this node (0.1 s)\n")
    entry = lease.data.cache / ALICE / "environment" / KEY
    entry.mkdir(parents=True)
    os.utime(entry, (1, 1))
    assert lease.take() == []
    assert entry.stat().st_mtime > 1


def test_no_training_leaves_an_environment(tmp_path: Path) -> None:
    lease = Lease(tmp_path, log=b"")
    (lease.archive.parent / "MANIFEST.json").write_text("{}")
    assert list(find_left(lease.work, until=float("inf"))) == []
    assert read_outcome(lease.folder) is None
