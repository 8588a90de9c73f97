"""The agent updates itself: signed, proven by a check-in, taken back without one.

    agent     without rights        reads its wanted version from the sync answer, writes it to DATA   wish.py
    updater   may write PREFIX      asked by that file; trusts the pinned key alone                    updater.py
    keeper    where no systemd is   calls the updater when there is something to do                    keeper.py
                                    brings back agents that crashed                                    reviving.py

PREFIX holds the releases side by side, and two links: `current` is what runs, `good` is the newest that has checked in.
The updater itself always runs out of `good`, so that a bad release cannot keep itself in place. Of DATA, which the
agent's user owns, the updater reads two small files as claims and writes nothing.

    1  verify     manifest by the pinned key, version only upwards, wheel by its SHA-256   manifest.py, fetching.py
    2  install    beside the old, every package by its hash                                installing.py
    3  switch     the trial is noted, then `current` is replaced in one rename             prefix.py
    4  prove      agents are restarted; each must sync within some minutes in which the server answers    trial.py
    5  keep       `good` follows — or `current` goes back, and the version is never tried again

Killed at any step, the next try begins with what is on the disk. Importing this package loads nothing else.
"""
