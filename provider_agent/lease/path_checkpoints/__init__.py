"""Checkpoints of a program that knows nothing of ours: a path that the job file names is copied, shipped, restored.

    listing.py     what lies at the path: names, sizes and times, and which of it can be kept
    copying.py     copies it while the program runs; a copy during which anything changed is none
    schedule.py    when it is copied, and the last time after the program has ended
    restoring.py   puts a checkpoint's content back to the path, before the next program starts
    state.py       what an agent that was restarted must know of the copies of a lease

A checkpoint has `MANIFEST.json`, written last, and below `content/` what lay at the path, under the path's last name.
"""
