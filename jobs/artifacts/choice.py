"""The store that SOUK_ARTIFACT_STORE names: `local`, this server's disk, or `s3`, any S3-compatible one."""

from __future__ import annotations

from functools import lru_cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from jobs.artifacts.local import LocalStore
from jobs.artifacts.store import Store


def get_store() -> Store:
    """The store that the settings name."""
    return _store_for(settings.SOUK_ARTIFACT_STORE)


@lru_cache(maxsize=2)
def _store_for(name: str) -> Store:
    if name == "local":
        return LocalStore.from_settings()
    if name == "s3":
        from jobs.artifacts.s3 import S3Store  # loads boto3, tens of megabytes that a local store does not need

        return S3Store.from_settings()
    raise ImproperlyConfigured(f"SOUK_ARTIFACT_STORE is {name!r}; it must be 'local' or 's3'.")
