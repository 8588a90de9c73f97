"""The porter at the provider's door: enrols a machine, runs assignments, meters them. No Django, no torch."""

import sys

# httpx brings a command of its own, and with it rich and pygments: memory and start-up that no agent at rest needs. It
# does without where they are missing, but they are here, for `souk`, and it has no switch: so its command is what is
# missing, for a module that is None cannot be imported. This stands here because it must come before whoever imports
# httpx first, and `souk-agent status` gains by it as much as the resident agent. A door of our own for httpx, which
# would do the same, is one that the next module forgets to go through.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
