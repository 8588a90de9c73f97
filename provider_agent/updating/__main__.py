"""`python -I -m provider_agent.updating once | keep --prefix FOLDER`: what units and the agent's service start."""

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
    parser.add_argument("verb", choices=["once", "keep"])
    parser.add_argument("--prefix", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=CHECK_IN_SECONDS, help="for a new release to check in")
    asked = parser.parse_args()
    prefix = asked.prefix.absolute()
    if asked.verb == "keep":
        from provider_agent.updating.keeper import keep

        keep(prefix, ["--seconds", str(asked.seconds)])
    return _once(prefix, asked.seconds)


def _once(prefix: Path, seconds: float) -> int:
    from provider_agent.errors import AgentError, UpdateRefused
    from provider_agent.updating.prefix import Prefix
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
