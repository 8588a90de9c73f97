"""Memory and speed of making tokens of text, by the size of the data: memory must not grow with it.

Each size is encoded in a process of its own, by a tokenizer of 4,096 tokens that was trained on Python's documentation.
`text` is that documentation over and over; `sparse` a file of zeros that takes no place on the disk, in one line.

    python -m benchmarks.tokenising [--mib 16 64 256] [--write]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.record import publish

SECONDS_MAX = 3600
KINDS = ("text", "sparse")


def main() -> None:
    """Every kind at every size, the sizes in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments, _ = parser.parse_known_args()
    if arguments.one:
        print(json.dumps(encode(arguments.one[0], int(arguments.one[1]))))
        return
    rows = []
    for mib in arguments.mib:
        for kind in KINDS:
            command = [sys.executable, "-m", "benchmarks.tokenising", "--one", kind, str(mib)]
            ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS_MAX)
            rows.append(json.loads(ended.stdout))
            print(rows[-1], file=sys.stderr)
    publish("tokenising", {"rows": rows})


def encode(kind: str, mib: int) -> dict[str, Any]:
    """Encode one file; peak memory is the process's, of which `before` was there with tokenizer and libraries."""
    from runtimes.job_files import JobFiles
    from runtimes.train.data.conversations import text_of
    from runtimes.train.data.documents import find_runs, read_records
    from runtimes.train.data.encode import EncodingProgress, encode_texts
    from runtimes.train.data.tokenizer import train_tokenizer

    with tempfile.TemporaryDirectory(prefix="souk-tokenising-", dir="/var/tmp") as name:
        folder = Path(name)
        documents = [text_of(record) for record in read_records(find_runs(("python-docs",), JobFiles(folder), 0))]
        tokenizer = train_tokenizer(documents, 4096)
        path, size = folder / "data.txt", mib << 20
        with path.open("wb") as file:
            if kind == "sparse":
                file.truncate(size)
            while file.tell() < size and kind == "text":
                file.write("\n".join(documents).encode())
        told: list[int] = []
        before, began = peak_mib(), time.monotonic()
        runs = find_runs(("data.txt",), JobFiles(folder), 0)
        encode_texts(
            read_records(runs),
            tokenizer,
            0,
            folder / "tokens",
            EncodingProgress(runs, lambda done, total, tokens: told.append(done)),
        )
        seconds = time.monotonic() - began
        return {
            "kind": kind,
            "mib": mib,
            "mib_per_second": round(mib / seconds, 2),
            "peak_mib": peak_mib(),
            "before_mib": before,
            "tokens": (folder / "tokens").stat().st_size // 4,
            "told": len(told),
        }


def peak_mib() -> int:
    """Of this process since its start."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


if __name__ == "__main__":
    main()
