"""The files that a job file names, with size and SHA-256, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pathspec

from jobs.spec import Spec, SpecError, SpecErrors
from provider_agent.protocol import FILES_PER_ARTIFACT_MAX, ArtifactFile
from runtimes.contract import sha256_file

FILES_BYTES_MAX = 20 * 1024**3
IGNORE_FILES = (".soukignore", ".gitignore")  # the first that is there counts, beside the job file
IGNORE_BYTES_MAX = 1 << 20
SKIPPED = frozenset({".git", ".hg", ".svn", "__pycache__", ".venv", ".DS_Store"})


@dataclass(frozen=True)
class LocalFile:
    """One file to send: where it is, and its entry in the job's input."""

    source: Path
    entry: ArtifactFile


def gather_files(spec: Spec, folder: Path) -> list[LocalFile]:
    """Every file under the spec's `files`, each once, by path; raises SpecErrors for what is missing or too much."""
    found: dict[str, Path] = {}
    errors: list[SpecError] = []
    ignored = _read_ignored(folder)
    for index, name in enumerate(spec.files):
        try:
            found |= {path.relative_to(folder).as_posix(): path for path in _named(folder / name, folder, ignored)}
        except ValueError as error:
            errors.append(
                SpecError(None, None, f"files[{index}]", f"{name!r} {error}", "a file or folder that is there")
            )
    if not errors and len(found) > FILES_PER_ARTIFACT_MAX:
        message = f"{len(found)} files are too many"
        errors.append(SpecError(None, None, "files", message, f"at most {FILES_PER_ARTIFACT_MAX} files"))
    size = sum(path.stat().st_size for path in found.values())
    if size > FILES_BYTES_MAX:
        errors.append(SpecError(None, None, "files", f"{size} bytes are too many", f"at most {FILES_BYTES_MAX} bytes"))
    if errors:
        raise SpecErrors(errors)
    return [local_file(path, found[path]) for path in sorted(found)]


def local_file(path: str, source: Path) -> LocalFile:
    """The file `source` as `path` of the input; reads all of it for its hash. Raises SpecErrors."""
    try:
        return LocalFile(source, ArtifactFile(path=path, size=source.stat().st_size, sha256=sha256_file(source)))
    except OSError as error:
        raise SpecErrors([SpecError(None, None, "files", f"{path!r} cannot be read: {error.strerror}")]) from error


def _read_ignored(folder: Path) -> pathspec.GitIgnoreSpec:
    """What the first of IGNORE_FILES beside the job file leaves out; raises SpecErrors for one that cannot be read."""
    for name in IGNORE_FILES:
        try:
            with (folder / name).open("rb") as opened:
                lines = opened.read(IGNORE_BYTES_MAX).decode(errors="replace").splitlines()
            return pathspec.GitIgnoreSpec.from_lines(lines)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise SpecErrors([SpecError(None, None, "files", f"{name} cannot be used: {error}")]) from error
    return pathspec.GitIgnoreSpec([])


def _named(path: Path, folder: Path, ignored: pathspec.GitIgnoreSpec) -> list[Path]:
    """The files of one entry of `files`. Who names a folder that is ignored wants it, whole."""
    is_wanted = path.exists() and path.resolve() != folder.resolve() and _is_ignored(path, folder, ignored)
    found = list(_files(path, folder, pathspec.GitIgnoreSpec([]) if is_wanted else ignored))
    if not found:
        raise ValueError(f"has no file to send, besides those that {' or '.join(IGNORE_FILES)} leaves out")
    return found


def _files(path: Path, folder: Path, ignored: pathspec.GitIgnoreSpec) -> Iterator[Path]:
    """`path` itself, or every file below it that is not ignored; links that lead out of `folder` are refused."""
    if not path.exists():
        raise ValueError("does not exist")
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError("leads out of the job file's folder")
    if path.is_symlink() and path.absolute().is_relative_to(path.resolve()):
        raise ValueError("leads in a circle")
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise ValueError("is neither a file nor a folder")
    for child in sorted(path.iterdir()):
        if child.name in SKIPPED or _is_ignored(child, folder, ignored):
            continue
        if child.exists() or not child.is_symlink():
            yield from _files(child, folder, ignored)


def _is_ignored(path: Path, folder: Path, ignored: pathspec.GitIgnoreSpec) -> bool:
    name = path.relative_to(folder).as_posix()
    return ignored.match_file(f"{name}/" if path.is_dir() and not path.is_symlink() else name)
