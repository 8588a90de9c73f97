"""`manage.py publish_agent`: make the agent's wheel of this very code, for install.sh to hand out."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from marketplace.portal.release import current_release, wheel_folder
from marketplace.portal.wheel import build_wheel


class Command(BaseCommand):
    """Repeating it is harmless: the same code makes the same bytes. One named by SOUK_AGENT_WHEEL is only checked."""

    help = "Make the agent's wheel of this code and publish it at /install.sh."

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.SOUK_AGENT_WHEEL:
            wheel = build_wheel(wheel_folder())
            for older in wheel_folder().glob("gpusouk-*.whl"):
                if older != wheel:
                    older.unlink()
        release = current_release()
        self.stdout.write(f"{release.name} sha256 {release.sha256}")
