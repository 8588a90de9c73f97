"""The agent updates itself: signed releases, proven by a check-in, rolled back without one.

    update_request.py   the agent's side, without rights: writes the version it should have to a file in DATA
    updater.py          started by that file: may write PREFIX, trusts nothing but the pinned key
    manifest.py         whether a release may be installed here
    fetching.py         downloads a release, within limits
    installing.py       installs a release beside the one that runs
    trial.py            whether the release that was switched to has checked in, or is rolled back
    keeper.py           without systemd: calls the updater when there is something to do
    reviving.py         without systemd: restarts agents that crashed
    __main__.py         what units and services start

PREFIX holds the releases side by side, and two links: `current` is what runs, `good` is the newest that has checked in.
The updater itself always runs out of `good`, so that a bad release cannot keep itself in place. Of DATA, which the
agent's user owns, the updater reads two small files as claims and writes nothing.

    1  verify     manifest by the pinned key, version only upwards, wheel by its SHA-256
    2  install    beside the old, every package by its hash
    3  switch     the trial is recorded in PREFIX, then `current` is replaced in one rename
    4  prove      agents are restarted; each must sync within some minutes in which the server answers
    5  finish     `good` follows; or `current` is rolled back, and the version is never tried again

Killed at any step, the next try begins with what is on the disk. Importing this package loads nothing else.
"""
