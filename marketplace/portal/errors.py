"""What can go wrong with the portal's own pages.

SoukError
|-- NoAgentWheel      503  there is nothing to install
`-- TooManyRequests   429  of one user, by pages and API together
"""

from __future__ import annotations

from marketplace.foundation.errors import SoukError


class NoAgentWheel(SoukError):
    message = (
        "This marketplace has no agent to install yet ({reason}). Its operator runs: python manage.py publish_agent"
    )
    code = "no_agent_wheel"
    status = 503


class TooManyRequests(SoukError):
    message = "You ask for more than this marketplace answers in a minute. Wait a moment, then load the page again."
    code = "too_many_requests"
    status = 429
