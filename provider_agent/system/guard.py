"""How every command ends: one clear line for an error, and the documented exit status; never a traceback."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

from provider_agent.errors import AgentError, Fatal, decide

EXIT_INTERRUPTED = 130


def exit_status_of(act: Callable[[], None]) -> int:
    """Run one command, its log on standard error; 0 when it is done."""
    logging.basicConfig(
        level=os.environ.get("SOUK_AGENT_LOG", "INFO").upper(),
        format="%(asctime)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        act()
    except AgentError as error:
        return _say(error)
    except OSError as error:
        return _say(Fatal(f"{error.strerror}: {error.filename}" if error.filename else str(decide(error))))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def _say(error: AgentError) -> int:
    sys.stderr.write(f"souk-agent: {error}\n")
    return error.exit_code
