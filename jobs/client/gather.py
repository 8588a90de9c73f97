"""The files that a job file names, with size and SHA-256, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.client.errors import TransferFailed, UsageMistake
from jobs.client.ignoring import IGNORE_FILES, SKIPPED, Ignoring
from jobs.spec import Spec, SpecError, SpecErrors
from jobs.spec.task_fields import TRAINED_FOLDER
from provider_agent.protocol import FILES_PER_ARTIFACT_MAX, PATH_DEPTH_MAX, ArtifactFile, file_name_mistake
from runtimes.contract import sha256_file

FILES_BYTES_MAX = 20 * 1024**3
CHUNK_BYTES = 1 << 20


Check = Callable[[Path], bool]


@dataclass(frozen=True)
class LocalFile:
    """One file to send: where it is, and its entry in the job's input."""

    source: Path
    entry: ArtifactFile

    def read(self, offset: int, size: int) -> Iterator[bytes]:
        """These bytes of it, in chunks; raises TransferFailed where it has become shorter."""
        with self.source.open("rb") as opened:
            opened.seek(offset)
            while size > 0:
                chunk = opened.read(min(CHUNK_BYTES, size))
                if not chunk:
                    raise TransferFailed(f"{self.entry.path} became shorter while it was sent.")
                size -= len(chunk)
                yield chunk


@dataclass(frozen=True)
class Gathered:
    """What a job file's `files` are."""

    files: list[LocalFile]  # each once, by path
    left_out: list[str]  # files and folders that usually hold a secret and that nobody named


def gather_files(spec: Spec, folder: Path) -> Gathered:
    """Every file under the spec's `files`; raises SpecErrors, which name the file, for what is missing or too much."""
    found: dict[str, Path] = {}
    errors: list[SpecError] = []
    gathering = _Gathering(folder)
    for index, name in enumerate(spec.files):
        try:
            found |= {path.relative_to(folder).as_posix(): path for path in gathering.find(folder / name)}
        except SpecErrors:
            raise
        except (ValueError, OSError) as error:
            message = f"{name!r} {error}" if isinstance(error, ValueError) else _unreadable(error, folder)
            errors.append(SpecError(None, None, f"files[{index}]", message, "a file or folder that is there"))
    mistakes = ((path, mistake) for path in sorted(found) if (mistake := file_name_mistake(path)))
    errors += [SpecError(None, None, "files", f"{path!r} {mistake}") for path, mistake in mistakes]
    kept = {*spec.inputs, *([TRAINED_FOLDER] if spec.evaluation else [])}
    mixed = sorted({path.partition("/")[0] for path in found} & kept)
    errors += [
        SpecError(
            None,
            None,
            f"inputs.{name}" if name in spec.inputs else "evaluation",
            f"{name!r}, which is kept for what another job left, is among the files, too",
            "another name",
        )
        for name in mixed
    ]
    if not errors and len(found) > FILES_PER_ARTIFACT_MAX:
        message = f"{len(found)} files are too many"
        errors.append(SpecError(None, None, "files", message, f"at most {FILES_PER_ARTIFACT_MAX} files"))
    size = sum(path.stat().st_size for path in found.values())
    if size > FILES_BYTES_MAX:
        errors.append(SpecError(None, None, "files", f"{size} bytes are too many", f"at most {FILES_BYTES_MAX} bytes"))
    if errors:
        raise SpecErrors(errors)
    left_out = sorted({unsent for name in gathering.left_out for unsent in _unsent(name, folder, found)})
    return Gathered([local_file(path, found[path]) for path in sorted(found)], left_out)


def gather_folders(paths: Sequence[Path]) -> Gathered:
    """Each file under its own name, and of each folder all that it holds, as of a job file's folder.

    Raises UsageMistake, which names the path, for what is missing, or has one name with another file.
    """
    found: dict[str, Path] = {}
    left_out: list[str] = []
    for path in paths:
        for name, file in _files_of(path, left_out):
            if name in found:
                raise UsageMistake(f"{found[name]} and {file} would both be {name!r}: put them below one folder.")
            found[name] = file
    return Gathered([local_file(name, found[name]) for name in sorted(found)], left_out)


def local_file(path: str, source: Path) -> LocalFile:
    """The file `source` as `path` of the input; reads all of it for its hash. Raises SpecErrors."""
    try:
        return LocalFile(source, ArtifactFile(path=path, size=source.stat().st_size, sha256=sha256_file(source)))
    except OSError as error:
        raise SpecErrors([SpecError(None, None, "files", f"{path!r} cannot be read: {error.strerror}")]) from error


def _files_of(path: Path, left_out: list[str]) -> list[tuple[str, Path]]:
    """A file that somebody named, whatever it is called, or what a folder holds; each with its path in the artifact."""
    if path.is_file():
        return [(path.name, path)]
    if not path.is_dir():
        raise UsageMistake(f"{path} is no file and no folder of this computer.")
    gathering = _Gathering(path)
    try:
        files = gathering.find(path)
    except (ValueError, OSError) as error:
        reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else error
        raise UsageMistake(f"{path} {reason}") from error
    left_out += sorted(gathering.left_out)
    return [(file.relative_to(path).as_posix(), file) for file in files]


def _unsent(name: str, folder: Path, found: Collection[str]) -> Iterator[str]:
    """What of a file or folder that was left out is not sent: another entry of `files` may have named it, or a part."""
    if name in found:
        return
    if not any(sent.startswith(f"{name}/") for sent in found):
        yield name
        return
    for path in (folder / name).rglob("*"):
        below = path.relative_to(folder)
        if path.is_file() and below.as_posix() not in found and SKIPPED.isdisjoint(below.parts):
            yield below.as_posix()


def _unreadable(error: OSError, folder: Path) -> str:
    path = Path(str(error.filename or "a file"))
    shown = path.relative_to(folder) if path.is_relative_to(folder) else path
    return f"{shown.as_posix()!r} cannot be read: {error.strerror}"


class _Gathering:
    """The files below one job file's folder, and what was left out on the way."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._ignoring = folder, Ignoring(folder)
        self.left_out: set[str] = set()

    def find(self, path: Path) -> list[Path]:
        """The files of one entry of `files`. Who names a folder that is ignored, or a secret one, wants it."""
        is_below = path.exists() and path.resolve() != self._folder.resolve()
        wanted = {
            check
            for check in (self._ignoring.is_ignored, self._ignoring.is_secret)
            if is_below and check(path)  # below it, this check leaves nothing out
        }
        found = list(self._files(path, "", wanted))
        if not found:
            raise ValueError(f"has no file to send, besides secrets and what {' or '.join(IGNORE_FILES)} leaves out")
        return found

    def _files(self, path: Path, inside: str, wanted: Collection[Check]) -> Iterator[Path]:
        """`path` itself, or every file below it that is not left out; links that lead out of the folder are refused.

        `inside`: the path below the entry of the job file, for messages.
        """
        where = f"holds {inside!r}, which " if inside else ""
        if not path.exists():
            raise ValueError(f"{where}does not exist")
        if not path.resolve().is_relative_to(self._folder.resolve()):
            raise ValueError(f"{where}leads out of the job file's folder")
        if path.is_symlink() and path.absolute().is_relative_to(path.resolve()):
            raise ValueError(f"{where}leads in a circle")
        if path.is_file():
            yield path
            return
        if not path.is_dir():
            raise ValueError(f"{where}is neither a file nor a folder")
        if inside.count("/") >= PATH_DEPTH_MAX:
            raise ValueError(f"{where}is more than {PATH_DEPTH_MAX} folders deep")
        for child in sorted(path.iterdir()):
            if not self._is_left_out(child, wanted) and (child.exists() or not child.is_symlink()):
                yield from self._files(child, f"{inside}/{child.name}".lstrip("/"), wanted)

    def _is_left_out(self, path: Path, wanted: Collection[Check]) -> bool:
        if path.name in SKIPPED or (self._ignoring.is_ignored not in wanted and self._ignoring.is_ignored(path)):
            return True
        if self._ignoring.is_secret not in wanted and self._ignoring.is_secret(path):
            self.left_out.add(path.relative_to(self._folder).as_posix())
            return True
        return False
