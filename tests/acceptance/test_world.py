"""The world of test_behind_nat.py leaves nothing, also when it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.market import wait_for
from tests.acceptance.world.making import alone, what_is_left
from tests.acceptance.world.supplies import of_pytest, why_not

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
END_SECONDS = 60.0
MAKE = """
import json, tempfile, time
from pathlib import Path
from tests.acceptance.world import making
with making.alone():
    folder = Path(tempfile.mkdtemp(prefix=making.PREFIX, dir=making.FOLDERS))
    folder.chmod(0o711)
    world = making.draw(folder)
    making.connect(world)
    world.nodes["node-1"].start_program("/tmp/log", "sleep", "1000")
    making.open_market(world, folder)
    print(json.dumps({"folder": str(folder), "namespaces": sorted(world.namespaces)}), flush=True)
    time.sleep(1000)
"""


def test_a_killed_world_leaves_only_files_and_the_next_one_removes_them() -> None:
    if why := why_not():
        pytest.skip(why)
    own = {name: value for name, value in os.environ.items() if name not in of_pytest()} | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", MAKE], stdout=subprocess.PIPE, text=True, env=own) as maker:
        made = json.loads(maker.stdout.readline())
        folder, namespaces = Path(made["folder"]), set(made["namespaces"])
        seen = "\n".join(what_is_left(folder, namespaces))
        assert all(f"{kind} " in seen for kind in ("process", "namespace net", "namespace pid", "interface", "route"))
        maker.send_signal(signal.SIGKILL)
    wait_for("the kernel to end it", lambda: not what_is_left(folder, namespaces), END_SECONDS)
    assert folder.exists()
    with alone():
        assert not folder.exists()
