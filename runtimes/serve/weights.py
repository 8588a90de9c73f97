"""Finds the model's folder and checks that an engine reads nothing from it that could run code.

Only safetensors are weights here: a pickle runs code when it is loaded, and a model with code of its own (`auto_map`)
requires the same. Both are refused, wherever the folder comes from.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from runtimes.contract import TOKENIZER_SETTINGS_FILE, EventKind, EventWriter, sha256_file
from runtimes.serve.config import Source
from runtimes.serve.errors import BadModel
from runtimes.serve.model import Model

FILES_MAX = 4096
HEADER_BYTES_MAX = 100_000_000  # what safetensors itself reads at most
JSON_BYTES_MAX = 64 << 20
HASH_THREADS = 4
FETCH_THREADS = 8
FOLDER_DEPTH_MAX = 4
REPORT_SECONDS = 1.0  # between two lines of progress
CONFIG_NAME, TOKENIZER_NAME, TEMPLATE_NAME = "config.json", "tokenizer.json", "chat_template.jinja"
WEIGHTS_SUFFIX = ".safetensors"
READ_PATTERNS = (
    "*.json",
    "*.jinja",
    "*.txt",
    "*.model",
    f"*{WEIGHTS_SUFFIX}",
)  # what is fetched from a hub, and hashed
PLAIN_TEMPLATE = Path(__file__).parent / "plain_chat.jinja"

Progress = Callable[[int, int], None]  # bytes done, bytes in all


def find_model(source: Source, *, input_dir: Path, lent_dir: Path, events: EventWriter) -> Model:
    """The model, checked and hashed, with `loading` events on the way; raises BadModel."""
    folder = _folder(source, input_dir=input_dir, lent_dir=lent_dir, events=events)
    config = _read_json(folder / CONFIG_NAME)
    _refuse_code(folder, config)
    weights = sorted(folder.glob(f"*{WEIGHTS_SUFFIX}"))
    for path in weights:
        _check_header(path)
    _check_index(folder)
    tokenizer = folder / TOKENIZER_NAME

    reported_at = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal reported_at
        if done == total or time.monotonic() - reported_at >= REPORT_SECONDS:
            reported_at = time.monotonic()
            events.write(EventKind.LOADING, stage="verify", bytes=done, bytes_total=total)

    return Model(
        folder=folder,
        config=config,
        digest=_digest(folder, report),
        tokenizer_digest=sha256_file(tokenizer) if tokenizer.is_file() else "",
        weights_bytes=sum(path.stat().st_size for path in weights),
        chat_template=_chat_template(folder),
    )


def _folder(source: Source, *, input_dir: Path, lent_dir: Path, events: EventWriter) -> Path:
    if source.kind == "hub":
        return _fetch_from_hub(source.value, events)
    if source.kind == "lent":
        return _model_below(lent_dir / source.value)
    if source.kind == "folder" and (input_dir / source.value).is_dir():
        return _model_below(input_dir / source.value)
    return _model_below(input_dir)


def _model_below(root: Path) -> Path:
    """The one folder at or below `root` that has a configuration and weights: a job's result has it in `model`."""
    if not root.is_dir():
        raise BadModel(f"there is no folder {root.name} with a model")
    for depth in range(FOLDER_DEPTH_MAX):
        pattern = "/".join(["*"] * depth + [CONFIG_NAME])
        found = sorted(path.parent for path in root.glob(pattern) if any(path.parent.glob(f"*{WEIGHTS_SUFFIX}")))
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(str(path.relative_to(root)) for path in found[:5])
            raise BadModel(f"{root.name} holds {len(found)} models ({names}): name the folder of one")
    raise BadModel(
        f"{root.name} holds no {CONFIG_NAME} beside *{WEIGHTS_SUFFIX}; other formats of weights can run code"
    )


def _fetch_from_hub(name: str, events: EventWriter) -> Path:
    """Fetch a snapshot, several files at once; what was fetched before is not fetched again."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repository, _, revision = name.partition("@")
    events.write(EventKind.LOADING, stage="fetch", bytes=0, bytes_total=None)
    try:
        path = snapshot_download(
            repository,
            revision=revision or None,
            allow_patterns=list(READ_PATTERNS),
            max_workers=FETCH_THREADS,
            tqdm_class=_progress_class(events),
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        text = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
        raise BadModel(f"{name} cannot be fetched from the hub: {text}") from error
    return _model_below(Path(path))


def _progress_class(events: EventWriter) -> type[Any]:
    """A progress bar that draws nothing and writes events; huggingface_hub makes one for all bytes."""
    import tqdm.auto  # type: ignore[import-untyped]

    reported_at = [0.0]

    class Progress(tqdm.auto.tqdm):  # type: ignore[misc]
        def __init__(self, *given: Any, **named: Any) -> None:
            named["file"] = open(os.devnull, "w")  # noqa: SIM115, PTH123 - tqdm closes nothing, and there are two
            super().__init__(*given, **named)

        def display(self, *_given: Any, **_named: Any) -> bool:
            if self.unit == "B" and time.monotonic() - reported_at[0] >= REPORT_SECONDS:
                reported_at[0] = time.monotonic()
                events.write(EventKind.LOADING, stage="fetch", bytes=int(self.n), bytes_total=self.total)
            return True

    return Progress


def _refuse_code(folder: Path, config: dict[str, Any]) -> None:
    if "auto_map" in config:
        raise BadModel("the model needs code of its own (auto_map), which is not run")
    for name in (TOKENIZER_SETTINGS_FILE, "processor_config.json", "preprocessor_config.json"):
        path = folder / name
        if path.is_file() and "auto_map" in _read_json(path):
            raise BadModel(f"{name} names code of the model's own (auto_map), which is not run")


def _check_header(path: Path) -> None:
    """That a file of weights is whole: its header is read, and every tensor lies within the file."""
    size = path.stat().st_size
    with path.open("rb") as source:
        length = int.from_bytes(source.read(8), "little")
        if not 2 <= length <= min(HEADER_BYTES_MAX, size - 8):
            raise BadModel(f"{path.name} is not a safetensors file, or is incomplete")
        try:
            header = json.loads(source.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise BadModel(f"{path.name} has no readable header of tensors") from error
    if 8 + length + max(ends, default=0) != size:
        raise BadModel(f"{path.name} has {size} bytes, and its header describes {8 + length + max(ends, default=0)}")


def _check_index(folder: Path) -> None:
    """That every file of an index is here."""
    for index in folder.glob(f"*{WEIGHTS_SUFFIX}.index.json"):
        named = _read_json(index).get("weight_map", {})
        missing = sorted({str(name) for name in named.values()} - {path.name for path in folder.iterdir()})
        if missing:
            raise BadModel(f"{len(missing)} files of weights are missing, {missing[0]} among them")


def _digest(folder: Path, report: Progress) -> str:
    """SHA-256 over the names and digests of what an engine reads: the same model gives the same, anywhere."""
    paths = sorted({path for pattern in READ_PATTERNS for path in folder.glob(pattern) if path.is_file()})
    if len(paths) > FILES_MAX:
        raise BadModel(f"the model has {len(paths)} files, more than {FILES_MAX}")
    total, done = sum(path.stat().st_size for path in paths), 0
    whole = hashlib.sha256()
    with ThreadPoolExecutor(HASH_THREADS) as threads:
        for path, digest in zip(paths, threads.map(sha256_file, paths), strict=True):
            done += path.stat().st_size
            report(done, total)
            whole.update(f"{path.name}\0{digest}\n".encode())
    return whole.hexdigest()


def _chat_template(folder: Path) -> Path | None:
    """The model's own template; a plain one for a model that was never taught to chat; None without a tokenizer."""
    if not (folder / TOKENIZER_NAME).is_file() and not any(folder.glob("*.model")):
        return None
    if (folder / TEMPLATE_NAME).is_file():
        return folder / TEMPLATE_NAME
    settings = folder / TOKENIZER_SETTINGS_FILE
    if settings.is_file() and _read_json(settings).get("chat_template"):
        return settings
    return PLAIN_TEMPLATE


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > JSON_BYTES_MAX:
            raise BadModel(f"{path.name} is larger than {JSON_BYTES_MAX} bytes")
        body = json.loads(path.read_text())
    except OSError as error:
        raise BadModel(f"{path.name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadModel(f"{path.name} is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadModel(f"{path.name} is not a mapping")
    return body
