"""The porter at the provider's door: enrols a machine, runs assignments, meters them. No Django, no torch."""

import sys

# httpx brings a command of its own, and with it rich and pygments: memory and start-up that no agent at rest needs.
# A module that is None cannot be imported, which httpx takes for "not installed".
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
