"""`python -I -m provider_agent.updating once | keep | revive --prefix FOLDER`: what units and services start."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

CHECK_IN_SECONDS = 180.0
EXIT_FAILED, EXIT_REFUSED = 1, 10


def main() -> int:
    """0 also where there was nothing to do; 10 where a release was refused or rolled back."""
    parser = argparse.ArgumentParser(prog="souk-agent-update", description=__doc__)
    parser.add_argument("verb", choices=["once", "keep", "revive"])
    parser.add_argument("--prefix", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=CHECK_IN_SECONDS, help="for a new release to check in")
    parser.add_argument("--data", type=Path, help="revive: whose agent")
    asked = parser.parse_args()
    prefix = asked.prefix.absolute()
    if asked.verb == "keep":
        from provider_agent.updating.keeper import keep

        keep(prefix, ["--seconds", str(asked.seconds)])
    if asked.verb == "revive":
        return _revive(prefix, asked.data)
    return _once(prefix, asked.seconds)


def _revive(prefix: Path, data: Path) -> int:
    from provider_agent.packaging.prefix import Prefix
    from provider_agent.updating.reviving import has_crashed
    from provider_agent.updating.trial import restart_agents

    installed = Prefix(prefix)
    with installed.only_updater() as is_mine:  # no update at the same time, and no other node's keeper
        if not is_mine or data not in installed.data_folders() or not has_crashed(data):
            return 0
        why = restart_agents(installed, [str(data)])
    sys.stderr.write(f"souk-agent: {why}\n" if why else "")
    return EXIT_FAILED if why else 0


def _once(prefix: Path, seconds: float) -> int:
    from provider_agent.errors import AgentError, UpdateRefused
    from provider_agent.packaging.prefix import Prefix
    from provider_agent.updating.updater import Updater

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        outcome = Updater(Prefix(prefix), seconds).once()
    except (AgentError, OSError) as error:
        sys.stderr.write(f"souk-agent: {error}\n")
        return EXIT_REFUSED if isinstance(error, UpdateRefused) else EXIT_FAILED
    sys.stdout.write(f"{outcome}\n")
    return EXIT_REFUSED if outcome == "rolled back" else 0


if __name__ == "__main__":
    sys.exit(main())
