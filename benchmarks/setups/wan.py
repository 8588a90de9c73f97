"""A long line between two network namespaces of this computer: delay, rate and a queue, in user space.

Each namespace has a TUN device; this process carries every packet from one to the other, later. The kernels here have
no netem; a line of one's own also says exactly what it does. Needs root.

    python -m benchmarks.setups.wan NAME ONE_WAY_MS MBIT_PER_SECOND      prints "ready", and carries until it is ended
"""

from __future__ import annotations

import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
MTU = 1500
QUEUE_SECONDS_MAX = 0.4  # what would wait longer for the line is dropped, as by a router with such a queue
PACKETS_AT_ONCE = 64
ENDS = 2


def namespace(name: str, end: int) -> str:
    """Of one end, 0 or 1."""
    return f"{name}-{end}"


def address(end: int) -> str:
    """At which one end is reached from the other."""
    return f"10.78.0.{end + 1}"


def lay(name: str) -> list[int]:
    """Both ends, and the files by which their packets come and go."""
    return [_end(name, end) for end in range(ENDS)]


def _end(name: str, end: int) -> int:
    device = f"wan{os.getpid() % 100_000}{end}"
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI))
    there = namespace(name, end)
    for line in (
        f"ip netns add {there}",
        f"ip link set {device} netns {there}",
        f"ip -n {there} address add {address(end)}/24 dev {device}",
        f"ip -n {there} link set {device} mtu {MTU} up",
        f"ip -n {there} link set lo up",
    ):
        subprocess.run(line.split(), check=True)
    return file


def take_up(name: str) -> None:
    """The namespaces go; with them what is in them."""
    for end in range(ENDS):
        subprocess.run(["ip", "netns", "delete", namespace(name, end)], check=False, capture_output=True)


def carry(files: list[int], *, delay_seconds: float, bytes_per_second: float) -> None:
    """For ever: each packet leaves when the line is free, and arrives `delay_seconds` after that."""
    under_way: list[tuple[float, int, int, bytes]] = []
    free_at = [0.0] * ENDS
    number = 0
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else 1.0
        for file in select.select(files, [], [], wait)[0]:
            end = files.index(file)
            for _ in range(PACKETS_AT_ONCE):
                try:
                    packet = os.read(file, 65_535)
                except BlockingIOError:
                    break
                now = time.monotonic()
                starts = max(now, free_at[end])
                if packet[0] >> 4 != 4 or starts - now > QUEUE_SECONDS_MAX:
                    continue
                free_at[end] = starts + len(packet) / bytes_per_second
                number += 1
                heapq.heappush(under_way, (free_at[end] + delay_seconds, number, 1 - end, packet))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, end, packet = heapq.heappop(under_way)
            try:
                os.write(files[end], packet)
            except BlockingIOError:
                continue


def main() -> None:
    """Lay it, say so, carry."""
    name, delay_ms, mbit = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    files = lay(name)
    print("ready", flush=True)
    carry(files, delay_seconds=delay_ms / 1000, bytes_per_second=mbit * 1e6 / 8)


if __name__ == "__main__":
    main()
