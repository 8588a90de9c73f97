"""Which server, and the key for it. The file is readable by its owner alone, and a key goes only to its own server."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jobs.client.errors import UsageMistake

LOOPBACK = ("localhost", "127.0.0.1", "::1")
DEFAULT_SERVER = "http://127.0.0.1:8000"
FILE_BYTES_MAX = 1 << 20


@dataclass
class Settings:
    """What `souk login` remembers."""

    server: str = ""
    keys: dict[str, str] = field(default_factory=dict, repr=False)  # server -> key
    organisations: dict[str, str] = field(default_factory=dict)  # server -> name, shown only


def settings_path() -> Path:
    """~/.config/souk/config.json, or below XDG_CONFIG_HOME."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "souk" / "config.json"


def load_settings() -> Settings:
    """The remembered settings; empty where there are none."""
    path = settings_path()
    try:
        text = path.read_bytes()[: FILE_BYTES_MAX + 1]
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise UsageMistake(f"{path} cannot be read: {error.strerror}") from error
    try:
        body = json.loads(text)
        return Settings(str(body.get("server", "")), _texts(body.get("keys")), _texts(body.get("organisations")))
    except (ValueError, AttributeError, RecursionError) as error:
        raise UsageMistake(f"{path} is damaged; remove it and run `souk login` again") from error


def save_settings(settings: Settings) -> Path:
    """Replace the file atomically; its mode is 0600 from the first byte on."""
    body = {"server": settings.server, "keys": settings.keys, "organisations": settings.organisations}
    return write_private(settings_path(), json.dumps(body, indent=2))


def write_private(path: Path, text: str, *, is_new: bool = False) -> Path:
    """Replace a file atomically; its mode is 0600 from the first byte on, and its folder's 0700.

    `is_new`: raises FileExistsError where it is there already, however closely two commands meet.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=".partial-")  # mkstemp makes it 0600
    try:
        with os.fdopen(descriptor, "w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        if is_new:
            path.hardlink_to(partial)
            Path(partial).unlink()
        else:
            Path(partial).replace(path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    return path


def choose_server(option: str | None, settings: Settings) -> str:
    """--server, then SOUK_SERVER, then what `souk login` remembered, then the embedded marketplace's address."""
    return normalise(option or os.environ.get("SOUK_SERVER") or settings.server or DEFAULT_SERVER)


def choose_key(server: str, settings: Settings) -> str:
    """SOUK_API_KEY, or the key remembered for exactly this server."""
    return os.environ.get("SOUK_API_KEY", "").strip() or settings.keys.get(server, "")


def normalise(server: str) -> str:
    """Scheme and authority without a trailing slash: https where none is given, on this computer http.

    Raises UsageMistake for anything else.
    """
    parts = urlsplit(server if "://" in server else f"https://{server}")
    if "://" not in server and parts.hostname in LOOPBACK:  # `souk up` has no certificate, and nobody sits between
        parts = parts._replace(scheme="http")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise UsageMistake(f"{server!r} is not a server's address, such as https://souk.example")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _texts(value: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in (value or {}).items()}
