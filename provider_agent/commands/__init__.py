"""The commands of `souk-agent`, beside enrol, start and retire in cli.py.

options.py       what every command shares: its options, its folder, one clear line for every error
known_folders.py which data folder a command is about, where --data does not name it
reports.py       status, doctor, earnings, logs: show, and change nothing
settings.py      drain, resume, price, schedule: what the provider changes at the marketplace
service.py       start, stop, wait, unit: the agent as a service of this computer
update.py        update: the version that runs and the one that is wanted; update now, hold updates
status_view.py   the status for people: lines, or a block on the terminal that changes
"""
