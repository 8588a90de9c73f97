"""How the agent runs on a computer: as a systemd unit, in the background, or in a container.

service.py           keeps the agent running, through systemd or in the background
unit.py              the agent's systemd unit
updater_service.py   keeps the updater beside an agent's service
prefix.py            the installed releases: which one runs, which is proven, what each update led to
"""
