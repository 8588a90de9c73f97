"""A server that would be unsafe as configured does not start; what each check protects is in its message."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured

from billing.chain.errors import SignerMissing
from billing.chain.keys import Role, key_for
from marketplace.accounts import signup
from marketplace.accounts.second_factor import OPTIONAL, REQUIRED
from marketplace.foundation.addresses import untrusted_proxies
from marketplace.foundation.addresses.client_address import read_trusted_proxies

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
SECRET_CHARACTERS_MIN = 50
DISTINCT_CHARACTERS_MIN = 8
SIGNING_KEY_CHARACTERS = 64
ARTIFACT_STORES = ("local", "s3")
KEPT_DAYS_MAX = 36_500
SECOND_MIB_PER_SECOND_MIN, SECOND_MIB_PER_SECOND_MAX = 0.1, 100_000.0
SECOND_HOURS_MAX = 24 * 365.0
STORAGE_USD_MICROS_MAX = 1_000_000_000  # $1,000 a GiB and month
STORAGE_GIB_MAX = 1_000_000_000
STAFF_SECOND_FACTOR = (REQUIRED, OPTIONAL)
EMAIL_VERIFICATION = (signup.REQUIRED, signup.OFF)
VERIFICATION_POLICIES = ("off", "shadow", "enforce")


def is_loopback(url: str) -> bool:
    """Whether only this computer can reach the URL."""
    return urlsplit(url).hostname in LOOPBACK


@register(Tags.security)
def check_transport(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Keys and passwords travel encrypted wherever the site can be reached from elsewhere."""
    found: list[CheckMessage] = []
    for name in ("SOUK_API_URL", "SOUK_SYNC_URL"):
        url = getattr(settings, name)
        if not is_loopback(url) and not url.startswith("https://") and not settings.SOUK_INSECURE_HTTP:
            found.append(
                Error(
                    f"{name} is {url}: keys would travel unencrypted.",
                    hint="Put a proxy with a certificate in front and use https://, or set SOUK_INSECURE_HTTP=1.",
                    id="souk.E001",
                )
            )
    if settings.DEBUG and not is_loopback(settings.SOUK_API_URL):
        found.append(
            Error("SOUK_DEBUG=1 shows settings to every visitor.", hint="Unset SOUK_DEBUG.", id="souk.E002"),
        )
    return found


@register(Tags.security)
def check_keys(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Keys that can be guessed are none."""
    found: list[CheckMessage] = []
    secret, signing = settings.SOUK_SECRET_KEY, settings.SOUK_SIGNING_KEY
    if len(secret) < SECRET_CHARACTERS_MIN or len(set(secret)) < DISTINCT_CHARACTERS_MIN:
        found.append(
            Error(
                f"SOUK_SECRET_KEY is weak: it needs {SECRET_CHARACTERS_MIN} random characters.",
                hint="python3 -c 'import secrets; print(secrets.token_urlsafe(48))'",
                id="souk.E003",
            )
        )
    is_hex = len(signing) == SIGNING_KEY_CHARACTERS and all(c in "0123456789abcdefABCDEF" for c in signing)
    if not is_hex or len(set(signing)) < DISTINCT_CHARACTERS_MIN:
        found.append(
            Error(
                f"SOUK_SIGNING_KEY must be {SIGNING_KEY_CHARACTERS} random hex digits.",
                hint="python3 -c 'import secrets; print(secrets.token_hex(32))'",
                id="souk.E004",
            )
        )
    return found


@register(Tags.security)
def check_trusted_proxies(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Limits by address count real addresses."""
    try:
        read_trusted_proxies(settings.SOUK_TRUSTED_PROXIES)
    except ImproperlyConfigured as error:
        return [Error(str(error), id="souk.E011")]
    if settings.SOUK_API_URL.startswith("https://") and not settings.SOUK_TRUSTED_PROXIES:
        return [
            Warning(
                "SOUK_API_URL is https://, so a proxy stands in front, and SOUK_TRUSTED_PROXIES names none: all"
                " visitors count as one address, and share its limits.",
                hint="Set SOUK_TRUSTED_PROXIES to the number of proxies, or to their networks.",
                id="souk.W002",
            )
        ]
    if not settings.SOUK_TRUSTED_PROXIES and (proxy := untrusted_proxies.noted()):
        return [
            Warning(
                f"A proxy at {proxy} passed requests on in the last days, and SOUK_TRUSTED_PROXIES names none: all"
                " visitors count as one address, and share its limits.",
                hint="Set SOUK_TRUSTED_PROXIES to the number of proxies, or to their networks.",
                id="souk.W003",
            )
        ]
    return []


@register(Tags.security)
def check_second_factor(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """An operator's password alone opens nothing that others can reach."""
    if settings.SOUK_STAFF_SECOND_FACTOR not in STAFF_SECOND_FACTOR:
        names = ", ".join(STAFF_SECOND_FACTOR)
        return [Error(f"SOUK_STAFF_SECOND_FACTOR must be one of {names}.", id="souk.E012")]
    if settings.SOUK_STAFF_SECOND_FACTOR == OPTIONAL and not is_loopback(settings.SOUK_API_URL):
        return [
            Warning(
                "SOUK_STAFF_SECOND_FACTOR=optional lets operators in by password alone, on a site that others reach.",
                hint="Unset it: each operator is then asked to set one up at the next sign-in.",
                id="souk.W004",
            )
        ]
    return []


@register(Tags.security)
def check_email_verification(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Accounts that move money have an address that somebody reads."""
    chosen = settings.SOUK_EMAIL_VERIFICATION
    if chosen not in EMAIL_VERIFICATION:
        return [Error(f"SOUK_EMAIL_VERIFICATION must be one of {', '.join(EMAIL_VERIFICATION)}.", id="souk.E013")]
    if chosen == signup.OFF and not is_loopback(settings.SOUK_API_URL):
        return [
            Warning(
                "SOUK_EMAIL_VERIFICATION=off lets anybody take any address, and tells which have accounts.",
                hint="Unset it; mail needs SOUK_SMTP_HOST.",
                id="souk.W005",
            )
        ]
    if chosen != signup.OFF and settings.EMAIL_BACKEND.endswith("console.EmailBackend"):
        return [
            Warning(
                "Accounts are made by a mailed link, and no mail server is named: links are printed into the worker's"
                " log alone.",
                hint="Set SOUK_SMTP_HOST.",
                id="souk.W006",
            )
        ]
    return []


@register()
def check_verification(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """A policy that is misspelt must not mean none."""
    if settings.SOUK_VERIFICATION in VERIFICATION_POLICIES:
        return []
    return [Error(f"SOUK_VERIFICATION must be one of {', '.join(VERIFICATION_POLICIES)}.", id="souk.E009")]


@register()
def check_artifact_store(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Artifacts have a place to go."""
    if settings.SOUK_ARTIFACT_STORE not in ARTIFACT_STORES:
        return [Error(f"SOUK_ARTIFACT_STORE must be one of {', '.join(ARTIFACT_STORES)}.", id="souk.E005")]
    if settings.SOUK_ARTIFACT_STORE == "s3" and not settings.SOUK_S3_BUCKET:
        return [Error("SOUK_ARTIFACT_STORE=s3 needs SOUK_S3_BUCKET.", id="souk.E006")]
    return []


@register()
def check_second_store(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """A second copy is another one: never in the store of the first, and with a rate that ends."""
    kind = settings.SOUK_ARTIFACT_SECOND_STORE
    if not kind:
        return []
    if kind not in ARTIFACT_STORES:
        wanted = f"SOUK_ARTIFACT_SECOND_STORE must be empty or one of {', '.join(ARTIFACT_STORES)}."
        return [Error(wanted, id="souk.E018")]
    found: list[CheckMessage] = []
    rate, hours = settings.SOUK_ARTIFACT_SECOND_MIB_PER_SECOND, settings.SOUK_ARTIFACT_SECOND_HOURS_MAX
    if not (SECOND_MIB_PER_SECOND_MIN <= rate <= SECOND_MIB_PER_SECOND_MAX and 0 < hours <= SECOND_HOURS_MAX):
        bounds = f"{SECOND_MIB_PER_SECOND_MIN:g} to {SECOND_MIB_PER_SECOND_MAX:g}"
        text = f"SOUK_ARTIFACT_SECOND_MIB_PER_SECOND must be {bounds}, SOUK_ARTIFACT_SECOND_HOURS_MAX up to"
        found.append(Error(f"{text} {SECOND_HOURS_MAX:g} hours.", id="souk.E019"))
    if kind == "s3":
        return [*found, *_check_second_bucket()]
    return [*found, *_check_second_folder()]


def _check_second_bucket() -> list[CheckMessage]:
    bucket, endpoint = settings.SOUK_ARTIFACT_SECOND_S3_BUCKET, settings.SOUK_ARTIFACT_SECOND_S3_ENDPOINT
    if not bucket:
        return [Error("SOUK_ARTIFACT_SECOND_STORE=s3 needs SOUK_ARTIFACT_SECOND_S3_BUCKET.", id="souk.E021")]
    first = (settings.SOUK_ARTIFACT_STORE, settings.SOUK_S3_ENDPOINT, settings.SOUK_S3_BUCKET)
    if first == ("s3", endpoint, bucket):
        return [Error("The second store is the bucket of the first one; name another.", id="souk.E022")]
    return []


def _check_second_folder() -> list[CheckMessage]:
    folder = Path(settings.SOUK_ARTIFACT_SECOND_FOLDER)
    if not folder.is_absolute():
        return [Error("SOUK_ARTIFACT_SECOND_STORE=local needs SOUK_ARTIFACT_SECOND_FOLDER, absolute.", id="souk.E021")]
    if settings.SOUK_ARTIFACT_STORE != "local":
        return []
    first = (Path(settings.SOUK_DATA) / "artifacts").resolve()
    second = folder.resolve()
    if first == second or first in second.parents or second in first.parents:
        return [Error(f"{folder} holds the first store, or lies in it; name another folder.", id="souk.E022")]
    data = Path(settings.SOUK_DATA)
    if folder.is_dir() and data.is_dir() and folder.stat().st_dev == data.stat().st_dev:
        text = f"{folder} is on the file system of SOUK_DATA: what takes one copy takes the other."
        return [Warning(text, hint="Name a folder on another disk.", id="souk.W007")]
    return []


@register()
def check_retention(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """What customers made is neither deleted nor charged by a slip of the pen."""
    found: list[CheckMessage] = []
    if not 1 <= settings.SOUK_OUTPUT_KEPT_DAYS <= KEPT_DAYS_MAX:
        found.append(Error(f"SOUK_OUTPUT_KEPT_DAYS must be 1 to {KEPT_DAYS_MAX} days.", id="souk.E014"))
    price, free = settings.SOUK_STORAGE_USD_MICROS_PER_GIB_MONTH, settings.SOUK_STORAGE_GIB_FREE
    if not (0 <= price <= STORAGE_USD_MICROS_MAX and 0 <= free <= STORAGE_GIB_MAX):
        wanted = f"SOUK_STORAGE_USD_MICROS_PER_GIB_MONTH must be 0 to {STORAGE_USD_MICROS_MAX}"
        found.append(Error(f"{wanted}, and SOUK_STORAGE_GIB_FREE 0 to {STORAGE_GIB_MAX}.", id="souk.E015"))
    return found


@register()
def check_limits(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """A limit below one would refuse everything, and say that there is too much of it."""
    names = ("SOUK_WAITING_JOBS_MAX", "SOUK_STORAGE_FILES_MAX")
    return [Error(f"{name} must be 1 or more.", id="souk.E016") for name in names if getattr(settings, name) < 1]


@register()
def check_settler_key(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Where a contract may pay for jobs, there is the key that settles them; one that cannot be read is none."""
    if not settings.SOUK_CHAINS:
        return []
    try:
        key_for(Role.SETTLER)
    except SignerMissing:
        name = "SOUK_CHAIN_SETTLER_KEY" if settings.SOUK_CHAIN_SETTLER_KEY else "SOUK_CHAIN_KEY"
        if getattr(settings, name):
            return [Error(f"{name} must be a private key of 64 hex digits.", id="souk.E010")]
        return [
            Warning(
                "SOUK_CHAINS is set and there is no settler key: no job that a wallet pays can be opened or ended, and"
                " the devices of those that run stay leased.",
                hint="Set SOUK_CHAIN_SETTLER_KEY; a marketplace of credits alone needs none.",
                id="souk.W001",
            )
        ]
    return []
