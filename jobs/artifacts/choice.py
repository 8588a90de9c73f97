"""The store that SOUK_ARTIFACT_STORE names: `local`, this server's disk, or `s3`, any S3-compatible one.

SOUK_ARTIFACT_SECOND_STORE names a second one for copies, in the same words, or none.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from jobs.artifacts.local import LocalStore
from jobs.artifacts.store import Store


def get_store() -> Store:
    """The store that the settings name."""
    return _store_for(settings.SOUK_ARTIFACT_STORE)


def get_second_store() -> Store | None:
    """The store of the copies; None where the settings name none.

    Raises FileNotFoundError while its folder is missing: a disk that is not mounted is never replaced by its mount
    point, which lies on the first one.
    """
    name = second_store_name()
    if not name:
        return None
    if name.startswith("local:") and not Path(settings.SOUK_ARTIFACT_SECOND_FOLDER).is_dir():
        raise FileNotFoundError(f"{settings.SOUK_ARTIFACT_SECOND_FOLDER} is no folder. Is its disk mounted?")
    return _second_store_for(name)


def second_store_name() -> str:
    """Which store the copies are in, as their rows keep it; empty where there is none."""
    kind = settings.SOUK_ARTIFACT_SECOND_STORE
    if kind == "local":
        return f"local:{settings.SOUK_ARTIFACT_SECOND_FOLDER}"
    if kind == "s3":
        return f"s3:{settings.SOUK_ARTIFACT_SECOND_S3_ENDPOINT}/{settings.SOUK_ARTIFACT_SECOND_S3_BUCKET}"
    return ""


@lru_cache(maxsize=2)
def _second_store_for(name: str) -> Store:
    if name.startswith("local:"):
        return LocalStore.second_from_settings()
    from jobs.artifacts.s3 import S3Store

    return S3Store.second_from_settings()


@lru_cache(maxsize=2)
def _store_for(name: str) -> Store:
    if name == "local":
        return LocalStore.from_settings()
    if name == "s3":
        from jobs.artifacts.s3 import S3Store  # loads boto3, tens of megabytes that a local store does not need

        return S3Store.from_settings()
    raise ImproperlyConfigured(f"SOUK_ARTIFACT_STORE is {name!r}; it must be 'local' or 's3'.")
