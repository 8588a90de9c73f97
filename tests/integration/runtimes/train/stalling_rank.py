"""The training with a rank that stops computing in the middle, and peers that wait seconds for it, not minutes."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from typing import Any

from runtimes.train import loop, parallel
from runtimes.train.__main__ import main

TIMEOUT = timedelta(seconds=4)
STALLED_STEP = 2
one_step = loop.one_step


def stall(training: Any) -> Any:
    if training.step == STALLED_STEP and os.environ["RANK"] == "1":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(600)
    return one_step(training)


if __name__ == "__main__":
    parallel.COLLECTIVE_TIMEOUT = TIMEOUT
    loop.one_step = stall
    main()
