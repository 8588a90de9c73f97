"""`manage.py publish_agent`: make the agent's wheel of this very code, and roll it out, a share of the nodes first."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from marketplace.foundation.errors import SoukError
from marketplace.nodes.models import AgentRelease
from marketplace.nodes.releases.catalogue import installable
from marketplace.nodes.releases.publishing import FIRST_SHARE, publish
from marketplace.portal.install.manifests import newest_release, wheel_folder
from marketplace.portal.install.wheel import build_wheel

WHEELS_KEPT: Final = 3  # earlier releases, to roll back to
WHEEL_PATTERN: Final = r"gpusouk-[0-9]+(\.[0-9]+){1,3}-py3-none-any\.whl"
ACTOR: Final = "operator:command"


class Command(BaseCommand):
    """Repeating it is harmless: the same code makes the same bytes. One named by SOUK_AGENT_WHEEL is only checked."""

    help = "Make the agent's wheel of this code, publish it at /install.sh, and roll it out to the nodes."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--share", type=float, default=FIRST_SHARE, help="of the nodes, updated first [0.05]")
        parser.add_argument("--wheel", type=Path, help="publish this file, built elsewhere, in place of this code")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["wheel"] is not None:
                _take(options["wheel"])
            elif not settings.SOUK_AGENT_WHEEL:
                build_wheel(wheel_folder())
            made = newest_release()
            row = publish(
                version=made.version, wheel=made.name, sha256=made.sha256, share=options["share"], actor=ACTOR
            )
        except SoukError as error:
            raise CommandError(error.message) from error
        _forget_wheels()
        if options["as_json"]:
            self.stdout.write(json.dumps({"version": row.version, "sha256": row.sha256, "state": row.state}))
        else:
            self.stdout.write(f"{made.name} sha256 {made.sha256}; {row.state}, {row.share:.0%} of the nodes")


def _take(wheel: Path) -> None:
    """Copy a wheel into the folder of those published; it must be one of the agent's."""
    if settings.SOUK_AGENT_WHEEL:
        raise CommandError("SOUK_AGENT_WHEEL names the wheel already; --wheel and it exclude each other.")
    if not wheel.is_file() or not re.fullmatch(WHEEL_PATTERN, wheel.name):
        raise CommandError(f"{wheel} is not a wheel of the agent (gpusouk-VERSION-py3-none-any.whl).")
    wheel_folder().mkdir(parents=True, exist_ok=True)
    part = wheel_folder() / f"{wheel.name}.part"
    shutil.copyfile(wheel, part)
    part.replace(wheel_folder() / wheel.name)


def _forget_wheels() -> None:
    """Delete the wheels that nodes can neither be sent nor be rolled back to."""
    kept = set(AgentRelease.objects.order_by("-published_at").values_list("wheel", flat=True)[: WHEELS_KEPT + 1])
    if (complete := installable()) is not None:
        kept.add(complete.wheel)
    for older in wheel_folder().glob("gpusouk-*.whl"):
        if older.name not in kept:
            older.unlink()
