"""Which names of files an artifact may have: such that no file system misreads."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

PATH_DEPTH_MAX = 32
NAME_BYTES_MAX = 255  # of one part of a path: what common file systems hold
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # Unicode's categories of control and formatting characters
PATH_CHARACTERS_MAX = 512

_PATH_RULES: list[tuple[Callable[[str], bool], str]] = [
    (lambda path: len(path) > PATH_CHARACTERS_MAX, f"has more than {PATH_CHARACTERS_MAX} characters"),
    (lambda path: path.startswith("/") or path[1:2] == ":", "must be relative"),
    (lambda path: "\\" in path, "must use forward slashes"),
    (lambda path: any(unicodedata.category(one) in INVISIBLE for one in path), "holds control characters"),
    (lambda path: any(name in {"", ".", ".."} for name in path.split("/")), "holds an empty name, '.' or '..'"),
    (lambda path: path.count("/") >= PATH_DEPTH_MAX, f"is more than {PATH_DEPTH_MAX} folders deep"),
    (
        lambda path: any(len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX for name in path.split("/")),
        f"holds a name of more than {NAME_BYTES_MAX} bytes",
    ),
    (lambda path: unicodedata.normalize("NFC", path) != path, "is not in Unicode normal form C"),
]


def file_name_mistake(path: str) -> str | None:
    """What is wrong with a file's name, or None."""
    return next((mistake for is_wrong, mistake in _PATH_RULES if is_wrong(path)), None)
