"""A gateway's settings (environment, options), and its identity (its data folder)."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from marketplace.foundation.addresses.forwarded import TrustedProxies, parse_trusted_proxies

PORT = 8002
BODY_MIB_MAX = 256  # as much as a job file may ask
MEBIBYTE = 1024 * 1024
ORIGINS_MAX = 100
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]{1,253}")


class ConfigError(Exception):
    """The gateway cannot start with these settings; the message names what to set."""


@dataclass(frozen=True)
class GatewayConfig:
    """All that can be set; the names in the environment are SOUK_GATEWAY_ and the field's."""

    control_url: str  # the marketplace's, without a path
    token: str = field(repr=False)  # the bearer that the marketplace knows gateways by
    data: Path
    url: str = ""  # ws:// or wss://, by which agents reach this gateway
    bind: str = "127.0.0.1"
    port: int = PORT
    cors_origins: tuple[str, ...] = ()  # none: no browser of another site may read answers
    metrics_token: str = field(default="", repr=False)  # empty: /metrics is for loopback only
    trusted_proxies: str = ""  # whose X-Forwarded-For is believed: how many, or which networks; empty: nobody's
    tls_cert: str = ""
    tls_key: str = ""
    body_mib_max: int = 16  # of one request, whatever its endpoint allows
    bodies_mib_max: int = 512  # of all requests that are being read and answered
    connections_max: int = 10_000
    requests_max: int = 5_000  # answered at once
    requests_per_endpoint_max: int = 2_500
    spool_mib_max: int = 256  # use that the marketplace has not stored yet: some 600,000 requests
    drain_seconds: int = 60  # for the requests under way when the gateway is stopped

    def __post_init__(self) -> None:
        if urlsplit(self.control_url).scheme not in {"http", "https"}:
            raise ConfigError(
                "SOUK_GATEWAY_CONTROL_URL must be the marketplace's address, such as https://souk.example"
            )
        if not self.token:
            raise ConfigError("SOUK_GATEWAY_TOKEN is not set; the marketplace's settings name the same one.")
        if self.url and urlsplit(self.url).scheme not in {"ws", "wss"}:
            raise ConfigError("SOUK_GATEWAY_URL must be a ws:// or wss:// address, by which agents reach this gateway.")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ConfigError("SOUK_GATEWAY_TLS_CERT and SOUK_GATEWAY_TLS_KEY belong together.")
        if len(self.cors_origins) > ORIGINS_MAX or not all(_ORIGIN.fullmatch(origin) for origin in self.cors_origins):
            raise ConfigError(
                "SOUK_GATEWAY_CORS_ORIGINS must be origins such as https://app.example, separated by commas."
            )
        _ = self.proxies
        for name in _NUMBERS:
            least = 0 if name == "port" else 1  # 0: a free one
            if getattr(self, name) < least:
                raise ConfigError(f"SOUK_GATEWAY_{name.upper()} must be at least {least}.")
        if self.body_mib_max > BODY_MIB_MAX:
            raise ConfigError(f"SOUK_GATEWAY_BODY_MIB_MAX may be {BODY_MIB_MAX} at most.")

    @property
    def proxies(self) -> TrustedProxies:
        """Which proxies are trusted. Raises ConfigError."""
        try:
            return parse_trusted_proxies(self.trusted_proxies)
        except ValueError as error:
            raise ConfigError(f"SOUK_GATEWAY_TRUSTED_PROXIES is {error}") from error

    @classmethod
    def from_env(cls, env: Mapping[str, str], **options: Any) -> GatewayConfig:
        """From SOUK_GATEWAY_*; options that are not None win. Raises ConfigError."""
        values: dict[str, Any] = {
            name: env[f"SOUK_GATEWAY_{name.upper()}"]
            for name in (*_TEXTS, *_NUMBERS, "data", "cors_origins")
            if env.get(f"SOUK_GATEWAY_{name.upper()}")
        }
        values |= {name: value for name, value in options.items() if value is not None}
        for name in _NUMBERS:
            if name in values:
                try:
                    values[name] = int(values[name])
                except ValueError:
                    raise ConfigError(f"SOUK_GATEWAY_{name.upper()} must be a whole number.") from None
        if isinstance(values.get("cors_origins"), str):
            values["cors_origins"] = tuple(part.strip() for part in values["cors_origins"].split(",") if part.strip())
        values["data"] = Path(values.get("data", "~/.souk-gateway")).expanduser()
        return cls(**({"control_url": "", "token": ""} | values))


_TEXTS = ("control_url", "token", "url", "bind", "metrics_token", "trusted_proxies", "tls_cert", "tls_key")
_NUMBERS = (
    "port",
    "body_mib_max",
    "bodies_mib_max",
    "connections_max",
    "requests_max",
    "requests_per_endpoint_max",
    "spool_mib_max",
    "drain_seconds",
)


@dataclass(frozen=True)
class Identity:
    """Who this gateway is, over restarts: its id numbers the use that it counts, its key proves it to agents."""

    gateway_id: UUID
    key: Ed25519PrivateKey = field(repr=False)
    lock: int = field(repr=False)  # held as long as the process lives

    @property
    def public_key(self) -> str:
        """As hex."""
        return self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def open_data(folder: Path) -> Identity:
    """The identity in a folder, made at the first start; nobody else has the folder open meanwhile.

    Raises ConfigError.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ConfigError(f"Another gateway has {folder} open: each needs a folder of its own.") from None
        gateway_id = UUID(_kept(folder / "gateway-id", str(uuid4()).encode()).decode().strip())
        seed = bytes.fromhex(_kept(folder / "key", os.urandom(32).hex().encode()).decode().strip())
        return Identity(gateway_id, Ed25519PrivateKey.from_private_bytes(seed), lock)
    except (OSError, ValueError) as error:
        raise ConfigError(f"The data folder {folder} cannot be used: {error}") from error


def _kept(path: Path, first: bytes) -> bytes:
    """A small file's content, written whole at the first time and readable by nobody else."""
    if not path.exists():
        new = path.with_name(path.name + ".new")
        new.unlink(missing_ok=True)
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(file, first)
            os.fsync(file)
        finally:
            os.close(file)
        new.rename(path)
        sync_folder(path.parent)
    return path.read_bytes()


def sync_folder(folder: Path) -> None:
    """New names in a folder outlive a loss of power."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
