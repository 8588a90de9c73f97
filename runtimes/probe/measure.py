"""One device's measurement: `ready` when warm, waits for a line on stdin, answers with one line of JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import torch

MATRIX_SIZE = {"cpu": 768, "cuda": 8192}  # a large CUDA matrix keeps every multiprocessor busy
COPIED_BYTES = {"cpu": 64 << 20, "cuda": 2 << 30}  # well above the caches
MEMORY_SHARE = 0.25  # of the seconds; the dtypes share the rest
DTYPES = {
    "cpu": (torch.float32, torch.bfloat16),
    "cuda": (torch.float32, torch.bfloat16, torch.float16),
}
STRETCHES = 5
REPEATS_MIN = 3
REPEATS_MAX = 1_000_000


def main(name: str, seconds: float) -> None:
    """Measure the device called `cpu:N`, `cuda:N` or `cuda:UUID`."""
    device = open_device(name)
    matrices = {dtype: make_matrices(device, dtype) for dtype in DTYPES[device.type]}
    for pair in matrices.values():
        pair[0] @ pair[1]  # loads the library's kernels
    wait(device)
    print_line("ready")
    if not sys.stdin.readline():
        sys.exit("the probe went away")
    began = time.monotonic()
    share = seconds * (1 - MEMORY_SHARE) / len(matrices)
    flops = {str(dtype).removeprefix("torch."): flops_of(pair, share, device) for dtype, pair in matrices.items()}
    bandwidth = bandwidth_of(device, seconds * MEMORY_SHARE)
    kind, _, given = name.partition(":")
    answer = {
        "uuid": name if kind == "cpu" or given.isdigit() else given,
        "flops_per_second": flops,
        "memory_bytes_per_second": bandwidth,
        "seconds": round(time.monotonic() - began, 3),
    }
    print_line(json.dumps(answer))


def open_device(name: str) -> torch.device:
    """The torch device of that name; a CUDA UUID is made the only visible one before CUDA starts."""
    kind, _, given = name.partition(":")
    if kind == "cpu":
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))
        return torch.device("cpu")
    if not given.isdigit():
        os.environ["CUDA_VISIBLE_DEVICES"] = given
    if not torch.cuda.is_available():
        sys.exit(f"{name}: torch sees no CUDA device here")
    device = torch.device("cuda", int(given) if given.isdigit() else 0)
    torch.cuda.set_device(device)
    return device


def make_matrices(device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Two square matrices of small numbers, so that no result overflows."""
    size = MATRIX_SIZE[device.type]
    generator = torch.Generator(device=device).manual_seed(1)
    left = torch.rand(size, size, device=device, generator=generator)
    return left.to(dtype), left.T.contiguous().to(dtype)


def flops_of(pair: tuple[torch.Tensor, torch.Tensor], seconds: float, device: torch.device) -> float:
    """FLOP/s of a matrix product: 2 n^3 over the seconds that one takes."""
    left, right = pair
    into = torch.empty_like(left)
    return 2 * left.shape[0] ** 3 / seconds_of(lambda: torch.mm(left, right, out=into), seconds, device)


def bandwidth_of(device: torch.device, seconds: float) -> float:
    """Bytes per second of a copy, read and written ones together."""
    source = torch.ones(COPIED_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    return 2 * COPIED_BYTES[device.type] / seconds_of(lambda: target.copy_(source), seconds, device)


def seconds_of(work: Callable[[], object], seconds: float, device: torch.device) -> float:
    """Seconds a call, in the best of STRETCHES: a neighbour's passing noise is not the device's fault.

    A stretch is far longer than a scheduler's slice and counts waiting for the processor: a device that shares its core
    with another must show it. Where a single call takes longer than `seconds`, as bfloat16 does on a processor that
    lacks it, that one is the measurement.
    """
    best, ends_at = float("inf"), time.perf_counter() + seconds
    for _ in range(STRETCHES):
        best = min(best, _stretch(work, seconds / STRETCHES, ends_at, device))
        if time.perf_counter() >= ends_at:
            break
    return best


def _stretch(work: Callable[[], object], seconds: float, ends_at: float, device: torch.device) -> float:
    calls, began = 0, time.perf_counter()
    while True:
        work()
        wait(device)
        calls += 1
        now = time.perf_counter()
        is_enough = calls >= REPEATS_MIN or now >= ends_at
        if (now - began >= seconds and is_enough) or calls >= REPEATS_MAX:
            return (now - began) / calls


def wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def print_line(line: str) -> None:
    """One line to the probe."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
