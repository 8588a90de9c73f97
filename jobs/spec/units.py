"""Money, memory and time as people write them, turned into integers without floating point."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal, InvalidOperation

AUTO = "auto"  # of checkpoints: the runtime reckons the interval
MICROS_PER_USD = 1_000_000
USD_MAX = 1_000_000_000
NODES_MAX = 1024
MEMORY_MIB_MAX = 1 << 40
DURATION_SECONDS_MAX = 365 * 24 * 3600

_MONEY = re.compile(r"\$?\s?(\d{1,12}(?:\.\d{1,18})?)")
_MEMORY = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s?(MB|GB|TB|MiB|GiB|TiB)")
_DURATION = re.compile(r"(?:(\d{1,6})d)?\s?(?:(\d{1,6})h)?\s?(?:(\d{1,6})m)?\s?(?:(\d{1,9})s)?")
_VERSION = re.compile(r"([0-9]{1,2})(?:\.([0-9]))?")
_NODES = re.compile(r"([0-9]{1,5})\.\.([0-9]{1,5})")
_STEPS = re.compile(r"(\d{1,9}) ?steps?")
_BYTES = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SECONDS = (86_400, 3_600, 60, 1)


def parse_money(value: object) -> int:
    """Micro-USD of `2`, `2.00` or `$2.00`; raises ValueError for anything finer, negative or too large."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise ValueError("is not an amount of money")
    text = value.strip() if isinstance(value, str) else _plain(value)
    match = _MONEY.fullmatch(text)
    if match is None:
        raise ValueError("is not an amount of money")
    micros = Decimal(match.group(1)) * MICROS_PER_USD
    if micros != micros.to_integral_value():
        raise ValueError("is finer than a millionth of a dollar")
    if micros <= 0:
        raise ValueError("is not above zero")
    if micros > USD_MAX * MICROS_PER_USD:
        raise ValueError("is too much money")
    return int(micros)


def format_money(usd_micros: int) -> str:
    """The exact dollars of an amount, with two decimals or as many as it needs: `2.00`, `0.0005`."""
    sign = "-" if usd_micros < 0 else ""
    whole, rest = divmod(abs(usd_micros), MICROS_PER_USD)
    decimals = f"{rest:06d}".rstrip("0")
    return f"{sign}{whole}.{decimals:0<2}"


def parse_memory(value: object) -> int:
    """MiB of `24GB` (10^9 bytes each) or `24GiB` (2^30), rounded up; raises ValueError."""
    match = _MEMORY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("is not an amount of memory")
    mib = (Decimal(match.group(1)) * _BYTES[match.group(2)] / (1 << 20)).to_integral_value(ROUND_CEILING)
    if not 0 < mib <= MEMORY_MIB_MAX:
        raise ValueError("is out of range")
    return int(mib)


def parse_version(value: object) -> tuple[int, int]:
    """(major, minor) of `12.4`, as a text or a number, or of `12`; raises ValueError."""
    text = value.strip() if isinstance(value, str) else ""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        text = str(value)
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError("is not a version such as 12.4")
    version = int(match.group(1)), int(match.group(2) or 0)
    if version[0] < 1:
        raise ValueError("is out of range")
    return version


def format_version(version: tuple[int, int]) -> str:
    """`12.4`, which `parse_version` reads back."""
    return f"{version[0]}.{version[1]}"


def parse_duration(value: object) -> int:
    """Seconds of `90s`, `5m`, `1h30m` or `2d`; raises ValueError."""
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) and value.strip() else None
    if match is None:
        raise ValueError("is not a duration")
    seconds = sum(int(count) * unit for count, unit in zip(match.groups(), _SECONDS, strict=True) if count)
    if not 0 < seconds <= DURATION_SECONDS_MAX:
        raise ValueError("is out of range")
    return seconds


def parse_nodes(value: object) -> tuple[int, int]:
    """(fewest, most) of `2..6`; of a whole number both are that. Raises ValueError.

    A job that grows trains over several nodes from its start: the fewest are two.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        nodes = value, value
    else:
        match = _NODES.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError("is not valid")
        nodes = int(match.group(1)), int(match.group(2))
        if nodes[0] < 2 or nodes[0] >= nodes[1]:
            raise ValueError("is no range from 2 or more nodes to more of them")
    if not 1 <= nodes[0] <= nodes[1] <= NODES_MAX:
        raise ValueError("is out of range")
    return nodes


def format_nodes(nodes: tuple[int, int]) -> int | str:
    """`3` or `2..6`, which `parse_nodes` reads back."""
    fewest, most = nodes
    return fewest if fewest == most else f"{fewest}..{most}"


def format_duration(seconds: int | None) -> str | None:
    """`90s`, which `parse_duration` reads back; None for none."""
    return None if seconds is None else f"{seconds}s"


def parse_every(value: object) -> tuple[int, int]:
    """(steps, seconds) of `50 steps` or `5m`, one of them 0; of `auto` both; raises ValueError."""
    if isinstance(value, str) and value.strip() == AUTO:
        return 0, 0
    match = _STEPS.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return 0, parse_duration(value)
    if int(match.group(1)) == 0:
        raise ValueError("is out of range")
    return int(match.group(1)), 0


def _plain(number: int | float | Decimal) -> str:
    """Digits without an exponent; a float as the shortest decimal that reads back as it, which is what was written."""
    try:
        exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    except InvalidOperation:
        return ""
    if not exact.is_finite() or abs(exact.adjusted()) > 30:
        return ""
    return f"{exact:f}"
