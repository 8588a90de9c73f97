"""Which installed environment of an earlier job may be used again: one that the same words would make on this node.

    1. read what decides it: the requirements or the lock, wheels beside them, the interpreter and all packages below
       it (in a container: the image), the job's variables and secrets, which whatever builds a package may read, and
       the models and the driver of the lease's devices, which it may build for
    2. their SHA-256 is the key of an entry in the node's cache, among those of the job's organisation
    3. where there is one, the program is given that entry alone, read-only

What cannot be known from here is not kept: files of requirements that name other files, addresses or variables, locks
with folders or files without a hash in them, variables that name files. Without a lock there may be newer versions
meanwhile: such an entry is used for a day.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from provider_agent.context import AgentContext
from provider_agent.errors import ExecutorFailed
from provider_agent.executors.base import LaunchSpec
from provider_agent.lease.cache.environments import keep_key
from provider_agent.lease.cache.owners import load_owner, owner_folder
from provider_agent.lease.cache.room import CHANGING, ENVIRONMENT_KIND, GIB, OWNER_SHARE
from provider_agent.lease.workfolder import INPUT_NAME, load_secrets
from provider_agent.protocol import Assignment, DeviceFacts
from runtimes.contract import LOCK_NAME, WHEELS_NAME, read_manifest, sha256_file

VERSION = 2  # of what an archive holds, and of how the key is reckoned
LOCK_BYTES_MAX = 16 * 1024**2
REQUIREMENTS_BYTES_MAX = 1024**2
LINE_CHARACTERS_MAX = 1000  # of one requirement without its hashes
WHEELS_MAX = 1000
UNLOCKED_SECONDS_MAX = 24 * 3600.0  # how long what names no exact packages is found again
DETAILS = ("driver", "cuda", "compute_capability")  # of a device: what a package is compiled for, beside its model
NAMES_OTHERS = "the requirements name files, addresses or variables"
PROJECT_NAMES = ("pyproject.toml", "uv.toml")  # what uv reads beside a lock

# A package, by its name, versions and markers: no address, path, variable or option. Each pattern here is linear: the
# text is a customer's, and a search holds up every other task of the agent.
REQUIREMENT = re.compile(r"[A-Za-z0-9](?:(?!\s-)[^/\\@$:])*")
HASH = re.compile(r"\w+:[0-9a-fA-F]+")
COMMIT = re.compile(r"[^#]+#[0-9a-f]{40}")
ENCODING = re.compile(rb"coding[:=]")
SEPARATORS = re.compile(r"[\s;,=<>!~()\[\]]")
ARCHIVE_SUFFIXES = (".whl", ".zip", ".tar", ".gz", ".bz2", ".xz", ".tgz", ".tbz", ".txz", ".tlz", ".lz", ".lzma")
OPTION = re.compile(
    r"(--no-index|--pre|--prefer-binary|--require-hashes)"
    r"|(--no-binary|--only-binary|--trusted-host)[ =]+[^/\\$\s=][^/\\$\s]*"
    r"|(-i|--index-url|--extra-index-url)[ =]*https?://[^$\s]+"
)
# Variables of a job that may run its own files before or while packages are installed, or read settings from them; what
# pip and uv are told by the others is no file.
OTHER_NAMES = frozenset({"AR", "CC", "CXX", "ENV", "GCONV_PATH", "HOME", "LD", "NETRC", "PATH", "SHELLOPTS"})
OTHER_PREFIXES = ("BASH_", "CMAKE_", "GIT_", "LD_", "PIP_", "PYTHON", "UV_", "XDG_")
ADDRESSES = ("http://", "https://")
INDEXES = frozenset(
    {"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"}
)
HARMLESS = frozenset(
    {"PIP_TRUSTED_HOST", "PIP_NO_INDEX", "PIP_PRE", "PIP_PREFER_BINARY", "PIP_ONLY_BINARY", "PIP_NO_BINARY"}
    | {"PIP_REQUIRE_HASHES", "PIP_DEFAULT_TIMEOUT", "PIP_TIMEOUT", "PIP_RETRIES", "PIP_NO_CACHE_DIR"}
    | {"PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONFAULTHANDLER", "PYTHONUTF8"}
)

log = logging.getLogger(__name__)


class NotKeptError(Exception):
    """What these words install cannot be known without installing it; the message says why."""


@dataclass(frozen=True)
class KeptEnvironment:
    """What is known of the environment that a program is going to have."""

    key: str = ""  # empty: nothing is kept
    entry: Path | None = None  # the one that an earlier job left
    bytes_max: int = 0  # of an archive
    why_not: str = ""  # for the log


async def open_environment(context: AgentContext, assignment: Assignment, spec: LaunchSpec) -> KeptEnvironment | None:
    """Look for an environment that an earlier job left, and note the key; None where this lease has no cache for one.

    To be called while the job's secrets are here, and once the image is. None, too, for a disk that fails, or an engine
    that does not answer.
    """
    program, bytes_max = assignment.program, context.config.cache_gib * GIB // OWNER_SHARE
    if not program.command or program.requirements is None or not load_owner(spec.folder) or not bytes_max:
        return None
    try:
        base = await context.executor.python_base(spec.image)
        variables = assignment.env | load_secrets(spec.folder)
        devices = device_facts(context.devices[uuid] for uuid in assignment.device_uuids)
        key = await asyncio.to_thread(
            environment_key, spec.work.resolve(), program.requirements, variables, base=base, devices=devices
        )
        is_exact = PurePosixPath(program.requirements).name == LOCK_NAME
        entry = await asyncio.to_thread(_find, context, spec.folder, key, is_exact=is_exact)
    except NotKeptError as error:
        return KeptEnvironment(why_not=str(error))
    except (OSError, ExecutorFailed) as error:
        log.warning("The cache of environments could not be opened: %s lease_id=%s", error, spec.lease_id)
        return None
    return KeptEnvironment(key, entry, bytes_max)


def device_facts(devices: Iterable[DeviceFacts]) -> list[list[str]]:
    """What a package may be built for: kind, model, driver and CUDA version, once for devices that are alike."""
    found = {(each.kind.value, each.model, *(str(each.details.get(name, "")) for name in DETAILS)) for each in devices}
    return sorted(map(list, found))


def environment_key(
    work: Path, requirements: str, variables: Mapping[str, str], *, base: str, devices: Sequence[Sequence[str]]
) -> str:
    """The SHA-256 of everything that decides what is installed; raises NotKeptError where not all of it is known.

    `variables`: of the job, with its secrets. `base`: as the executor says it. `devices`: as device_facts has them.
    Blocks: it reads all wheels.
    """
    if not base:
        raise NotKeptError("what the interpreter has is not known")
    _require_harmless(variables)
    file = work / INPUT_NAME / requirements
    is_lock = file.name == LOCK_NAME
    text = _read(file, LOCK_BYTES_MAX if is_lock else REQUIREMENTS_BYTES_MAX)
    content = {"requirements": hashlib.sha256(text).hexdigest()}
    wheels = file.parent / WHEELS_NAME
    if is_lock:
        _require_known_files(text)
        beside = [file.with_name(name) for name in PROJECT_NAMES if file.with_name(name).is_file()]
        content |= {path.name: hashlib.sha256(_read(path, LOCK_BYTES_MAX)).hexdigest() for path in beside}
    else:
        for line in logical_lines(text):
            _require_plain(line)
        if wheels.is_dir():
            content |= {f"{WHEELS_NAME}/{path.name}": sha256_file(path) for path in _files(wheels)}
    body = [VERSION, is_lock, content, base, devices, dict(variables)]
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _find(context: AgentContext, lease_folder: Path, key: str, *, is_exact: bool) -> Path | None:
    """The entry, where there is one that may be used; the lease's folder notes the key for the end."""
    keep_key(lease_folder, key)
    with CHANGING:  # the owner is in use from here on: nobody removes it
        entry = owner_folder(context.folder, load_owner(lease_folder)) / ENVIRONMENT_KIND / key
        if not entry.is_dir():
            return None
    try:
        age = time.time() - float(read_manifest(entry)["made_at"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return entry if is_exact or 0 <= age < UNLOCKED_SECONDS_MAX else None


def _read(path: Path, bytes_max: int) -> bytes:
    try:
        with path.open("rb") as source:
            text = source.read(bytes_max + 1)
    except OSError as error:
        raise NotKeptError(f"{path.name} cannot be read") from error
    if len(text) > bytes_max:
        raise NotKeptError(f"{path.name} has more than {bytes_max >> 20} MiB")
    return text


def _files(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.is_file())
    if len(found) > WHEELS_MAX:
        raise NotKeptError(f"{folder.name}/ has more than {WHEELS_MAX} files")
    return found


def logical_lines(text: bytes) -> Iterator[str]:
    """Of a file of requirements, as pip reads it: lines that end with a backslash are joined, then comments removed.

    A comment is never joined to the line after it. Raises NotKeptError where pip may read other characters than these.
    """
    if any(line.startswith(b"#") and ENCODING.search(line) for line in text.split(b"\n", 2)[:2]):
        raise NotKeptError("the requirements name an encoding")
    try:
        lines = text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise NotKeptError("the requirements are no UTF-8") from error
    parts: list[str] = []
    for line in [*lines, ""]:  # the last one, where it ends with a backslash, has nothing to be joined to
        is_comment = line.lstrip().startswith("#")
        if line.endswith("\\") and not is_comment:
            parts.append(line.strip("\\"))
            continue
        joined = "".join([*parts, " " if is_comment else "", line])
        parts = []
        plain = re.sub(r"(^|\s)#.*$", "", joined).strip()
        if plain:
            yield plain


def _require_plain(line: str) -> None:
    """It names a package, or where packages come from; raises NotKeptError for everything else."""
    plain = " ".join(_words_without_hashes(line))
    if len(plain) > LINE_CHARACTERS_MAX:
        raise NotKeptError(f"a line of the requirements has more than {LINE_CHARACTERS_MAX} characters")
    has_archive = any(word.endswith(ARCHIVE_SUFFIXES) for word in SEPARATORS.split(plain.lower()))
    is_package = REQUIREMENT.fullmatch(plain) is not None and not has_archive
    if not is_package and OPTION.fullmatch(plain) is None:
        raise NotKeptError(NAMES_OTHERS)


def _words_without_hashes(line: str) -> Iterator[str]:
    words = iter(line.split())
    for word in words:
        option, _, value = word.partition("=")
        if option != "--hash":
            yield word
        elif HASH.fullmatch(value or next(words, "")) is None:
            raise NotKeptError(NAMES_OTHERS)


def _require_known_files(text: bytes) -> None:
    """Every package of the lock but the project itself has a hash; raises NotKeptError where one has none."""
    try:
        packages = tomllib.loads(text.decode()).get("package", [])
        sources = [each.get("source", {}) for each in packages]
        has_folder = any(source.get(kind, ".") != "." for source in sources for kind in ("editable", "directory"))
        has_folder |= any(not source.get("registry", "https://").startswith(ADDRESSES) for source in sources)
        are_known = all(_is_known(each) for each in packages)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise NotKeptError(f"{LOCK_NAME} cannot be read") from error
    if has_folder:
        raise NotKeptError(f"{LOCK_NAME} names folders")
    if not are_known:
        raise NotKeptError(f"{LOCK_NAME} names files without a hash")


def _is_known(package: Mapping[str, Any]) -> bool:
    """Whether the lock has a hash of each file of the package; a commit is one, and the project has no files."""
    source = package.get("source", {})
    files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
    if not all(HASH.fullmatch(file.get("hash", "")) for file in files):
        return False
    is_project = any(kind in source for kind in ("editable", "directory", "virtual"))
    return bool(files) or is_project or COMMIT.fullmatch(source.get("git", "")) is not None


def _require_harmless(variables: Mapping[str, str]) -> None:
    """What the job sets decides nothing by a file; raises NotKeptError where it may."""
    for name, value in variables.items():
        if name in INDEXES:
            if not _are_addresses(value):
                raise NotKeptError(f"{name} names a folder")
        elif name in OTHER_NAMES or (name.startswith(OTHER_PREFIXES) and name not in HARMLESS):
            raise NotKeptError(f"{name} is set")


def _are_addresses(value: str) -> bool:
    """Each word, behind the name that uv may have for it."""
    return all(re.sub(r"^[\w-]+=", "", word).startswith(ADDRESSES) for word in value.split())
