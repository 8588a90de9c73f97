"""What a container is given and what it must leave behind. Standard library only.

The agent sets the environment below, creates the folders, starts the command and reads the events. A program that
knows nothing of Souk satisfies the contract too: it ignores the variables, exits 0, and leaves what it wrote under
OUTPUT_DIR. `runtimes/README.md` describes the same on one page.

    SOUK_WORK_DIR/                 the working directory of the command
        input/                     files of the job, read-only by intent
        checkpoint/step-00000100/  one folder a checkpoint; MANIFEST written last makes it complete
        output/                    what the customer gets; complete when the command exits 0
        events.jsonl               one JSON object a line, appended by global rank 0 only; on the other nodes of a
                                   gang it holds that node's `preparing`, `prepared` and `started` and nothing else
        config.json                the `train` or `serve` section of the job file, for the built-in runtimes
        serve.sock                 of a serving runtime: HTTP, where the agent brings the requests
        .souk-cache/KIND/KEY/      what later trainings of the same customer may use on this node; see node_cache.py
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from typing import Any, TypeGuard
from urllib.parse import urlsplit

CONTRACT_VERSION = 1

MANIFEST_NAME = "MANIFEST.json"
PARTIAL_SUFFIX = ".partial"  # of a manifest that is being written
CHECKPOINT_PREFIX = "step-"
# Of a checkpoint of our own training, beside each rank's weights; the server looks into the small ones.
METADATA_FILE = ".metadata"
TRAINER_FILE = "trainer.json"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_SETTINGS_FILE = "tokenizer_config.json"
TRAINER_BYTES_MAX = 1024 * 1024
TOKENIZER_BYTES_MAX = 256 * 1024 * 1024  # of a million tokens it has half of that
METADATA_BYTES_MAX = 256 * 1024 * 1024  # of 100,000 tensors on 1,000 ranks
# What a checkpoint's cursor means depends on the first three; which tensors it has, and what they do, on the others.
PINNED_SETTINGS = ("global_batch_size", "sequence_length", "seed", "lora", "quantize", "dpo", "ema", "early_stop")
EVENT_LINE_BYTES_MAX = 64 * 1024
STEP_DIGITS_MAX = 12
# Of `preparing` events: when they are written, and what is believed of them; see `read_preparing`.
PREPARING_FIRST_SECONDS = 60.0  # of one work, before its first event: shorter work is neither reported nor billed
PREPARING_EVERY_SECONDS = 30.0  # between two events, where something has moved since the last one
PREPARING_WORKS = ("model", "tokenizer", "data", "references")
PREPARING_WORK_SECONDS_MAX = 30 * 24 * 3600
PREPARING_AMOUNT_MAX = 2**53  # the largest integer that every reader of JSON keeps
PREPARING_UNIT = re.compile(r"[a-z]{1,20}")  # bytes, documents, tokens, ...
# Of `metrics` in `step` and `evaluated` events: the names that figures of an own program may have.
METRIC_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_./-]{0,39}")
# In the work folder of a gang's node: the newest generation, by the agent, and the one that runs, by the launcher.
GANG_FILE = "gang.json"
JOINED_FILE = ".gang-joined"
LOST_PEER_FILE = ".gang-lost-peer"  # by the launcher: the generation whose ranks here ended because they lost a peer
SIZES_FILE = ".gang-sizes"  # by a launcher that goes on in a gang of another size, at another rank: 1
GANG_FILE_BYTES_MAX = 64 * 1024
# What our training leaves for later ones of its customer on the same node, below its work folder, and beside it what it
# used of earlier ones: a line KIND/KEY each. A folder counts once its manifest is written.
NEW_CACHE_NAME = ".souk-cache"
CACHE_USED_NAME = "used"
CACHE_USED_BYTES_MAX = 64 * 1024
CACHE_KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}")
CACHE_KEY = re.compile(r"[0-9a-f]{64}")  # a SHA-256 of everything that decides the content
# The kinds of entries that our training makes: the artifact store may keep them for later attempts of the same job.
TOKENS_KIND, TOKENIZER_KIND = "tokens", "tokenizer"
PREPARED_KINDS = frozenset({TOKENS_KIND, TOKENIZER_KIND})
MADE_SECONDS_NAME = "made_seconds"  # in an entry's manifest: how long it took to make
SERVE_SOCKET = "serve.sock"  # in the work folder; the runtime makes it, the agent alone connects to it
HASH_CHUNK_BYTES = 1 << 20
# Of the work folder's top: what the contract puts there, which no `checkpoint.path` may be.
RESERVED_NAMES = frozenset(
    {"checkpoint", "resume", "config.json", "events.jsonl", GANG_FILE, JOINED_FILE, LOST_PEER_FILE, NEW_CACHE_NAME}
    | {SIZES_FILE, SERVE_SOCKET}
)
# A path lent/LABEL/... of a job file lies in a shared host folder, where LABEL is among the job's `lent`.
LENT_NAME = "lent"
WHEELS_NAME = "wheels"  # beside a file of requirements: packages that are not fetched from the internet
LOCK_NAME = "uv.lock"  # in place of a file of requirements, beside its project
PROJECT_NAME = "pyproject.toml"
# Secrets for endpoints reach the evaluation under this prefix: under a name of their own they could be PYTHONPATH.
ENDPOINT_KEY_PREFIX = "ENDPOINT_KEY_"
ENDPOINT_CHARACTERS_MAX = 300
# Data of a training on S3, and the variables by which it is reached: the job's own, and nothing else.
S3_SCHEME = "s3://"
S3_EXAMPLE = "https://s3.example.org"  # of an endpoint, for messages
S3_KEY_BYTES_MAX = 1024  # by S3 itself
S3_VARIABLES = frozenset(
    {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
    | {"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3"}
)
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})  # by hand and in tests: job files name none
CHECKPOINT_PATH_CHARACTERS_MAX = 200
CHECKPOINT_PATH_PARTS_MAX = 8
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_IPV4_LIKE = re.compile(r"[0-9]+(\.[0-9]+){3}")  # which is no bucket's name
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
MODELS_DIR = Path(__file__).parent / "train" / "models"  # one configuration a shipped model


class Env(StrEnum):
    """Names of the variables that every container is given."""

    CONTRACT = "SOUK_CONTRACT"
    JOB_ID = "SOUK_JOB_ID"
    ATTEMPT_ID = "SOUK_ATTEMPT_ID"
    WORK_DIR = "SOUK_WORK_DIR"
    INPUT_DIR = "SOUK_INPUT_DIR"
    OUTPUT_DIR = "SOUK_OUTPUT_DIR"
    CHECKPOINT_DIR = "SOUK_CHECKPOINT_DIR"
    LENT_DIR = "SOUK_LENT_DIR"  # holds a folder for each label that the job names under `lent`; read-only
    CACHE_DIR = "SOUK_CACHE_DIR"  # what earlier trainings of the customer left on the node, read-only; empty: no cache
    RESUME_FROM = "SOUK_RESUME_FROM"  # folder of the checkpoint to resume from; empty at the first attempt
    EVENTS = "SOUK_EVENTS"  # path of events.jsonl
    CONFIG = "SOUK_CONFIG"  # path of config.json
    DEVICE_KIND = "SOUK_DEVICE_KIND"  # "cpu" or "cuda"
    DEVICES_PER_NODE = "SOUK_DEVICES_PER_NODE"
    NODES = "SOUK_NODES"
    NODE_RANK = "SOUK_NODE_RANK"
    MASTER_ADDR = "SOUK_MASTER_ADDR"
    MASTER_PORT = "SOUK_MASTER_PORT"
    INTERFACE = "SOUK_INTERFACE"  # that leads to the gang; of a container's gang it comes a moment after the start
    ADDRESS = "SOUK_ADDRESS"  # this node's, there; rank zero's is MASTER_ADDR
    CHECKPOINT_EVERY_STEPS = "SOUK_CHECKPOINT_EVERY_STEPS"  # "0": not by steps
    CHECKPOINT_EVERY_SECONDS = "SOUK_CHECKPOINT_EVERY_SECONDS"  # "0": not by time
    # "0": the interval stays as it is; else a runtime may reckon its own, by Young and Daly
    MEAN_SECONDS_TO_FAILURE = "SOUK_MEAN_SECONDS_TO_FAILURE"
    CHECKPOINT_KEEP = "SOUK_CHECKPOINT_KEEP"
    # The number of the gang's generation, whose successors GANG_FILE may announce; empty: none are (generations.py)
    GENERATION = "SOUK_GENERATION"
    # "1": it is none of that generation, and joins the gang in the next one that is announced; else empty
    JOINS_NEXT = "SOUK_JOINS_NEXT"


class ExitCode(IntEnum):
    """Exit codes of the built-in runtimes (sysexits.h where one fits); any other code is the customer's own."""

    OK = 0
    BAD_CONFIG = 64
    BAD_DATA = 65
    INTERNAL = 70
    STOPPED = 75  # SIGTERM was honoured: a checkpoint was saved before leaving
    BAD_CHECKPOINT = 76  # SOUK_RESUME_FROM cannot be resumed from: whoever saved it answers for it, not the job
    OUT_OF_MEMORY = 77
    LOST_PEER = 79  # a connection to another rank broke, or nothing came over it: that one's doing, or the network's


class EventKind(StrEnum):
    """What an event line reports. Unknown kinds are kept and shown, never refused."""

    # what (one of PREPARING_WORKS), seconds of that work; done, total, unit where they are known. Long work before
    # `started`, written by each node's leader and only where something moved: from the first one on the attempt runs
    PREPARING = "preparing"
    # what ("tokenizer" or "data"), seconds that it took, found (whether an earlier training or attempt had made it):
    # the work is done. Written by each node's leader, where there is a cache
    PREPARED = "prepared"
    # model, parameters, world_size, steps_total, tokens_total, device, dtype: first healthy signal. trained_parameters:
    # where adapters alone are trained. model_config: what of the model's config.json its shape follows from, where
    # the planner knows models of its kind
    STARTED = "started"
    RESUMED = "resumed"  # step, from_world_size, seconds
    # step, loss, tokens, tokens_per_second, learning_rate, gradient_norm, seconds. model_flops_per_second: of all ranks
    # together, not for a model with experts. mfu: its share of the data sheets' bfloat16, where they are known.
    # skipped: steps of this attempt whose gradient was not finite, if any. metrics: own figures by their names.
    # peak_bytes: the most memory that this rank took in the steps so far: torch's on a GPU, else the process's
    STEP = "step"
    SHARED = "shared"  # step, sequences: of each rank, from that step on (where the configuration asks)
    EVALUATED = "evaluated"  # step, loss; metrics, as in `step`
    # step, path, seconds_blocked (of the training, waiting for the one before included), seconds_total; every_seconds:
    # when the next one is due, where the runtime reckons that itself
    CHECKPOINTED = "checkpointed"
    SAMPLED = "sampled"  # step, prompt, text
    SAMPLES = "samples"  # step, ids: which sequences that step trained on (where the configuration asks)
    STOPPED_EARLY = "stopped_early"  # step, steps_total (that were asked for), best_step, best_loss
    EXPORTED = "exported"  # path, files; best_step: whose weights they are, where that was asked for
    FINISHED = "finished"  # step, loss, tokens
    FAILED = "failed"  # message, exit_code
    LOADING = "loading"  # of a serving runtime: stage, bytes, bytes_total
    READY = "ready"  # the same, after `started` and one real token: engine, capabilities, context, vocabulary, seconds
    SERVED = "served"  # the same, each half minute: requests, input_tokens, output_tokens, in_flight, queued


class Capability(StrEnum):
    """What an engine can do; `ready` lists them, and a gateway refuses what is not among them."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    TOOLS = "tools"
    TOOL_CHOICE = "tool_choice"
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    LOGPROBS = "logprobs"
    MANY = "n"  # several choices a request
    STREAM_USAGE = "stream_usage"
    SEED = "seed"
    PENALTIES = "penalties"
    CONTINUES = "continues"  # goes on from the beginning of an answer (continue_final_message), so a stream can move
    COMMITS = "commits"  # to what it computed (see commitments)


@dataclass(frozen=True)
class FileEntry:
    """One file of a manifest: `path` relative with forward slashes, `size` in bytes, `sha256` in hex."""

    path: str
    size: int
    sha256: str


class EventWriter:
    """Appends whole event lines, each with its time; does nothing where the variable is unset (a bare torchrun)."""

    def __init__(self, path: str | None = None) -> None:
        path = path if path is not None else os.environ.get(Env.EVENTS, "")
        self._file = Path(path).open("ab", buffering=0) if path else None  # noqa: SIM115 - open as long as the process

    def write(self, kind: EventKind | str, **data: Any) -> None:
        """Append one line in one write, so that a reader never sees half of it; `data` must be JSON.

        A number that is not finite, such as the loss of a training that diverged, becomes null: JSON has no NaN.
        """
        if self._file is None:
            return
        finite = {
            key: None if isinstance(item, float) and not math.isfinite(item) else item for key, item in data.items()
        }
        line = json.dumps({"event": str(kind), "at": round(time.time(), 3), **finite}, separators=(",", ":"))
        self._file.write(line.encode()[: EVENT_LINE_BYTES_MAX - 1] + b"\n")


def read_preparing(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a `preparing` event says, within its bounds; None where it is none, or names no work or no time.

    Returns `what` and `seconds`; where they are known also `done` (whole, of `unit`), `total` (at least `done`) and
    `unit`. A program may write anything: an amount or unit that cannot be is left out.
    """
    what, seconds = event.get("what"), event.get("seconds")
    is_named = isinstance(what, str) and what in PREPARING_WORKS
    if event.get("event") != EventKind.PREPARING or not is_named:
        return None
    if not _is_amount(seconds, PREPARING_WORK_SECONDS_MAX):
        return None
    found: dict[str, Any] = {"what": what, "seconds": round(float(seconds), 1)}
    done, total, unit = event.get("done"), event.get("total"), event.get("unit")
    if _is_amount(done, PREPARING_AMOUNT_MAX):
        found["done"] = int(done)
        if _is_amount(total, PREPARING_AMOUNT_MAX) and int(total) >= max(int(done), 1):
            found["total"] = int(total)
        if isinstance(unit, str) and PREPARING_UNIT.fullmatch(unit):
            found["unit"] = unit
    return found


def _is_amount(value: object, most: int) -> TypeGuard[int | float]:
    """Whether it is a number from 0 to `most`; NaN is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most


# --- the challenge: what the device that computes and the server that checks agree on to the bit (probe/challenge.py)

WORD_BITS = 32
EXACT_BELOW = 2**24  # float32 holds every integer up to here, so a sum below it is the same in any order
MODULUS_MAX = 256  # residues are bytes
MEMORY_SEGMENT_WORDS = 2**26  # of the memory's stream under one key: a 32-bit counter alone would come round at 16 GiB


def challenge_key(seed: str, *labels: str | int) -> int:
    """A 32-bit key that only holders of the seed can compute; each label gives another."""
    digest = hashlib.sha256("\n".join(["souk-challenge-v1", seed, *map(str, labels)]).encode()).digest()
    return int.from_bytes(digest[: WORD_BITS // 8], "big")


def challenge_modulus(size: int) -> int:
    """The largest prime p for which a product of two size x size matrices of residues stays exact in float32."""
    for candidate in range(MODULUS_MAX - 1, 2, -1):
        is_prime = all(candidate % divisor for divisor in range(2, int(candidate**0.5) + 1))
        if is_prime and (candidate - 1) ** 2 * size < EXACT_BELOW:
            return candidate
    raise ValueError(f"no modulus keeps a product of size {size} exact")


def state_root(tile_hashes: bytes) -> str:
    """The commitment to one state: SHA-256 over the SHA-256 of its tiles, row by row."""
    return hashlib.sha256(tile_hashes).hexdigest()


def checkpoint_folder(root: Path, step: int) -> Path:
    """Where the checkpoint taken after `step` steps lies."""
    return root / f"{CHECKPOINT_PREFIX}{step:08d}"


def checkpoint_step(folder: Path) -> int | None:
    """The step in a checkpoint folder's name, or None when it is not one."""
    digits = folder.name.removeprefix(CHECKPOINT_PREFIX)
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= STEP_DIGITS_MAX
    return int(digits) if folder.name != digits and is_number else None


def lent_label(path: str) -> str | None:
    """The label of the shared host folder that a job file's path lies in, if the job names it; None for other paths."""
    parts = PurePosixPath(path).parts
    return parts[1] if len(parts) > 1 and parts[0] == LENT_NAME and not parts[1].startswith(".") else None


def checkpoint_path_mistake(path: str) -> str | None:
    """What is wrong with a job file's `checkpoint.path`, relative to the work folder; None for a good one."""
    parts = path.split("/")
    if len(path) > CHECKPOINT_PATH_CHARACTERS_MAX or len(parts) > CHECKPOINT_PATH_PARTS_MAX:
        return f"has more than {CHECKPOINT_PATH_CHARACTERS_MAX} characters or {CHECKPOINT_PATH_PARTS_MAX} names"
    if not all(_PLAIN_NAME.fullmatch(part) for part in parts):
        return "is not a path of plain names below the work folder (letters, digits, _, . and -, the first no . or -)"
    if parts[0] in RESERVED_NAMES or path == "input":
        return "lies where the marketplace itself writes"
    return None


def requirements_path_mistake(path: str) -> str | None:
    """What is wrong with a job file's `requirements`, relative to the input folder; None for a good one."""
    parts = path.split("/")
    if len(path) > CHECKPOINT_PATH_CHARACTERS_MAX or len(parts) > CHECKPOINT_PATH_PARTS_MAX:
        return f"has more than {CHECKPOINT_PATH_CHARACTERS_MAX} characters or {CHECKPOINT_PATH_PARTS_MAX} names"
    if not all(_PLAIN_NAME.fullmatch(part) for part in parts):
        return "is not a path of plain names under files (letters, digits, _, . and -, the first no . or -)"
    if not path.endswith(".txt") and parts[-1] != LOCK_NAME:
        return f"is no file of requirements, which ends with .txt (`pip freeze` makes one) or is called {LOCK_NAME}"
    return None


def endpoint_mistake(address: str, *, has_key: bool, example: str = "https://HOST/v1") -> str | None:
    """What is wrong with the address of an OpenAI-compatible endpoint, up to `/v1`, or of an S3; None: nothing."""
    is_plain = len(address) <= ENDPOINT_CHARACTERS_MAX and address.isascii() and address.isprintable()
    if not is_plain or " " in address or "\\" in address:
        return f"is no address of up to {ENDPOINT_CHARACTERS_MAX} plain characters"
    try:
        parts = urlsplit(address)
        port = parts.port
        (parts.hostname or "").encode("idna")  # as resolvers take it
    except ValueError:
        return f"is no address such as {example}"
    if parts.scheme not in ("https", "http") or not parts.hostname or port == 0:
        return f"is no address such as {example}"
    if "@" in parts.netloc or "?" in address or "#" in address:
        return "has a user, a query or a fragment, which would be shown in results; a key belongs under secrets"
    if parts.scheme == "http" and has_key and parts.hostname not in LOOPBACK_HOSTS:
        return "begins with http://, and the key would cross the network for everybody to read"
    return None


def is_s3_address(name: str) -> bool:
    """Whether a path of a job file is meant to be on S3, rightly written or not."""
    return name.startswith("s3:")


def split_s3_address(address: str) -> tuple[str, str]:
    """Bucket and key of `s3://bucket/key`; the key has no `/` at its end, and is empty for a whole bucket."""
    bucket, _, key = address.removeprefix(S3_SCHEME).partition("/")
    return bucket, key.rstrip("/")


def s3_address_mistake(address: str) -> str | None:
    """What is wrong with the address of data on S3: `s3://bucket/key`, `*` in the key's parts; None for a good one."""
    bucket, key = split_s3_address(address)
    if not address.startswith(S3_SCHEME) or not _BUCKET.fullmatch(bucket) or ".." in bucket:
        return "is no address such as s3://bucket/folder, with a bucket's name in small letters, digits, - and ."
    if _IPV4_LIKE.fullmatch(bucket):
        return "has an address in place of a bucket's name"
    if not address.isprintable() or len(key.encode(errors="replace")) > S3_KEY_BYTES_MAX:
        return f"has characters that nobody can print, or a key of more than {S3_KEY_BYTES_MAX} bytes"
    if not all(part and part not in (".", "..") for part in (key.split("/") if key else [])):
        return "has an empty part, or one that is . or .."
    if "**" in key:
        return "has **: a folder is read with all folders below it, and * stands for a part of one name"
    return None


def is_public_address(text: str) -> bool:
    """Whether an address is of the public internet: not private, loopback, link-local, multicast, or reserved."""
    address = ip_address(text.partition("%")[0])
    inside = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    return address.is_global and not address.is_multicast and (inside is None or is_public_address(str(inside)))


def complete_checkpoints(root: Path) -> list[Path]:
    """Folders of the checkpoints whose manifest was written, oldest first; partial ones are left out."""
    found = [p for p in root.glob(f"{CHECKPOINT_PREFIX}*") if checkpoint_step(p) is not None]
    # By number: as text step-100000000 comes before step-99999999.
    return sorted((p for p in found if (p / MANIFEST_NAME).is_file()), key=lambda p: (checkpoint_step(p), p.name))


def list_files(folder: Path) -> list[FileEntry]:
    """Every file below `folder` but its own manifest, sorted by path, with its size and SHA-256."""
    own = {folder / MANIFEST_NAME, folder / (MANIFEST_NAME + PARTIAL_SUFFIX)}
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p not in own)
    return [FileEntry(p.relative_to(folder).as_posix(), p.stat().st_size, sha256_file(p)) for p in paths]


def write_manifest(folder: Path, *, known: list[FileEntry] | None = None, **extra: Any) -> list[FileEntry]:
    """Make `folder` complete: hash its files, flush them to the disk, then write the manifest last, atomically.

    `known`: the files where they have been hashed already.
    """
    files = list_files(folder) if known is None else known
    for entry in files:
        _flush(folder / entry.path)
    body = {"contract": CONTRACT_VERSION, **extra, "files": [entry.__dict__ for entry in files]}
    partial = folder / (MANIFEST_NAME + PARTIAL_SUFFIX)
    with partial.open("w") as out:
        json.dump(body, out)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(folder / MANIFEST_NAME)
    _flush(folder)  # the names in it
    return files


def _flush(path: Path) -> None:
    """What was written to a file or folder is on the disk, whoever wrote it: after a power cut it is there."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a complete folder; raises FileNotFoundError for a partial one."""
    body: dict[str, Any] = json.loads((folder / MANIFEST_NAME).read_text())
    return body


def shipped_models() -> list[str]:
    """Names of the models that the built-in training runtime carries with it."""
    return sorted(path.stem for path in MODELS_DIR.glob("*.json"))


def shipped_model_config(name: str) -> dict[str, Any]:
    """The Hugging Face configuration of a shipped model; raises KeyError that names the ones there are."""
    if name not in shipped_models():
        raise KeyError(f"no shipped model {name!r}: {', '.join(shipped_models())}")
    config: dict[str, Any] = json.loads((MODELS_DIR / f"{name}.json").read_text())
    return config


def sha256_file(path: Path) -> str:
    """SHA-256 of a file in hex, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while chunk := source.read(HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
