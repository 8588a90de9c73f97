"""The agent on the provider's node: enrols a computer, runs assignments, meters them. No Django, no torch.

__main__.py             `python -m provider_agent`
cli.py                  the `souk-agent` command
resident.py             the agent as it stays in memory
daemon.py               starts the loops, supervises them, stops them
loop_supervisor.py      restarts a loop that ended, and gives up after a named number of failures
sync.py                 control-plane sync: reports what is, receives what should be, converges
assembly.py             puts the parts of an enrolled node together
client.py               signed calls to the marketplace
config.py               settings, and the layout of the data folder
errors.py               every error, and which of them may be retried
facts.py                what the node reports about itself
images.py               names of the default container images
journal.py              what must survive a restart, in SQLite
keys.py                 the node's private keys
own_log.py              the agent's own log file
remote_install.py       installs an agent on another computer through SSH
process_venv.py         the virtual environment with torch, for the process executor
"""

import sys

# httpx brings a command of its own, and with it rich and pygments: memory and start-up that no agent at rest needs. It
# does without where they are missing, but they are here, for `souk`, and it has no switch: so its command is what is
# missing, for a module that is None cannot be imported. This stands here because it must come before whoever imports
# httpx first, and `souk-agent status` gains by it as much as the resident agent. A wrapper module
# around httpx would do the same, until the next module imports httpx itself.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
