"""`manage.py rollout status | pause | resume | set | back`: the operator steers a release of the agent."""

from __future__ import annotations

import json
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from jobs import sweeps
from marketplace.foundation.errors import SoukError
from marketplace.nodes.releases import publishing, rollout
from marketplace.nodes.releases.progress import status
from marketplace.portal.install.manifests import require_wheel

ACTOR: Final = "operator:command"


class Command(BaseCommand):
    """What is changed here reaches the nodes at once."""

    help = "Show the agent's rollout, pause or resume it, set its share, or roll the nodes back to an older release."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        for verb, text in (
            ("status", "the release, its share, who has it, who rolled it back"),
            ("pause", "send the release to no other node"),
            ("resume", "go on; rollbacks so far are forgiven"),
            ("set", "send it to this share of the nodes"),
            ("back", "withdraw the newest release and roll its nodes back to an older one"),
        ):
            one = verbs.add_parser(verb, help=text)
            one.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
            if verb == "set":
                one.add_argument("--share", type=float, required=True, help="above 0, at most 1")
            if verb == "back":
                one.add_argument("--to", required=True, help="version of an older release")

    def handle(self, *args: Any, **options: Any) -> None:
        verb = options["verb"]
        try:
            if verb == "pause":
                rollout.pause(actor=ACTOR)
            elif verb == "resume":
                rollout.resume(actor=ACTOR)
            elif verb == "set":
                rollout.set_share(options["share"], actor=ACTOR)
            elif verb == "back":
                require_wheel(options["to"])
                publishing.roll_back_to(options["to"], actor=ACTOR)
        except SoukError as error:
            raise CommandError(error.message) from error
        if verb != "status":
            sweeps.sweep_releases()
        found = status()
        self.stdout.write(json.dumps(found, indent=1) if options["as_json"] else "\n".join(_lines(found)))


def _lines(found: dict[str, Any]) -> list[str]:
    if found["release"] is None:
        return ["No release is published: python manage.py publish_agent"]
    why = f" ({found['reason']})" if found["reason"] else ""
    which = f"release {found['release']}  {found['state']}{why}"
    lines = [
        f"{which}  share {found['share']:.0%} since {found['stage_at'][:16]} UTC",
        f"of {found['nodes']} nodes that update themselves {found['updated']} have it",
        f"{found['settled']} have had it for long enough; {found['waiting']} update, {found['silent']} fell silent",
        f"{found['rolled_back']} rolled it back",
        f"new nodes install {found['installable']}",
    ]
    return lines + [f"rolled back by {one['node']}: {_plain(one['reason'])}" for one in found["rollbacks"]]


def _plain(text: str) -> str:
    """Nodes wrote it: nothing in it may move the cursor or begin a line."""
    return "".join(each if each.isprintable() else " " for each in text)
