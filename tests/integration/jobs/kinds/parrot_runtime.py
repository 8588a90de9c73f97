"""The runtime of the toy kind `parrot`: standard library only, as a container's program is."""

import json
import os
import time
from pathlib import Path

config = json.loads(Path(os.environ["SOUK_CONFIG"]).read_text())
for number in range(config["times"]):
    print(number, config["text"], flush=True)
    time.sleep(1)
Path(os.environ["SOUK_OUTPUT_DIR"], "parrot.txt").write_text(config["text"])
