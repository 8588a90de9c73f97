"""A database that had some of the migrations that one here replaces, and not all, is refused in words.

Django takes such a migration for neither applied nor to be applied, and ends somewhere in its models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, Tags, register


@register(Tags.database)
def check_age(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """What is missing can only be made by the version that still had it. `manage.py migrate` asks this first."""
    from django.db import connections
    from django.db.migrations.loader import MigrationLoader

    for name in kwargs.get("databases") or ():
        loader = MigrationLoader(connections[name])
        for each in loader.replacements.values():
            missing = [".".join(key) for key in each.replaces if key not in loader.applied_migrations]
            if missing and len(missing) < len(each.replaces):
                return [
                    Error(
                        f"The database is older than this version can bring up to date: it lacks {missing[0]}.",
                        hint="Migrate it once with the last version that had this step (docs/operator-guide.md).",
                        id="souk.E017",
                    )
                ]
    return []
