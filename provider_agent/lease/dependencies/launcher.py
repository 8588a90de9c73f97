"""The small shell program that stands before a command with `setup` or `requirements`, in its sandbox.

1. make a Python environment of the attempt's own, on top of the interpreter that it finds
2. install the requirements into it, where they were not installed before
3. run each line of `setup` by bash, one after the other
4. become the command: the same process, so that signals reach it as without a setup

Each step is a line in the log before and after it. A step that fails, or all of them when they take longer than
SETUP_SECONDS_MAX, end the attempt with a `failed` event that names it. SIGTERM ends the step that runs.

It is POSIX shell because an image of a customer's need not have Python. What a line exports ends with it: variables for
the command belong into `env`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

SETUP_SECONDS_MAX = 3600  # of all steps before the command together
KILL_AFTER_SECONDS = 10  # from SIGTERM to SIGKILL, of a step that took too long
SHOWN_CHARACTERS_MAX = 200
ENVIRONMENT_NAME = ".environment"  # in the work folder; names with a dot are no output
BASE_PATHS_NAME = "_souk_base.pth"

# Run by the interpreter that is there already: the new environment sees all that this one does (torch among it), and
# what is installed into it later comes first. `pip` and `torchrun` are small scripts, so that they run by it.
MAKE_ENVIRONMENT = f"""
import importlib.util, os, sys, venv
folder = sys.argv[1]
is_nested = sys.prefix != sys.base_prefix
has_pip = importlib.util.find_spec("pip") is not None
venv.EnvBuilder(clear=True, symlinks=True, with_pip=not has_pip, system_site_packages=not is_nested).create(folder)
name = "python%d.%d" % sys.version_info[:2]
below = [each for each in sys.path if os.path.basename(each) in ("site-packages", "dist-packages")]
with open(os.path.join(folder, "lib", name, "site-packages", "{BASE_PATHS_NAME}"), "w") as out:
    out.writelines("import site; site.addsitedir(%r)\\n" % each for each in below)
for script, module in (("pip", "pip"), ("pip3", "pip"), ("torchrun", "torch.distributed.run")):
    if importlib.util.find_spec(module.partition(".")[0]) is None and module != "pip":
        continue
    path = os.path.join(folder, "bin", script)
    with open(path, "w") as out:
        out.write('#!/bin/sh\\nexec "%s/bin/python" -m %s "$@"\\n' % (folder, module))
    os.chmod(path, 0o755)
"""

# Arguments: interpreter ('' for what the path has), the program above, the environment's folder, whether it is needed,
# folders of programs before the path's, seconds in all, number of steps; for each step what it is called, its line, and
# both as they stand in JSON; then the command.
SCRIPT = r"""
python=$1 make=$2 environment=$3 is_needed=$4 programs=$5 seconds_max=$6 total=$7
shift 7
late= stopped= running=
say() { printf '[souk] %s\n' "$*"; }
fail() {  # exit code, message as JSON
    printf '{"event":"failed","at":%s,"message":"%s"}\n' "$(date +%s)" "$2" >> "$SOUK_EVENTS"
    exit "$1"
}
end_step() { trap '' TERM; stopped=1; kill -TERM 0; }
trap end_step TERM
began=$(date +%s)
wait_for_step() {  # sets code
    grace=0
    while kill -0 "$running" 2>/dev/null; do
        sleep 0.1 2>/dev/null || sleep 1
        now=$(date +%s)
        if [ -z "$late" ] && [ $((now - began)) -ge "$seconds_max" ]; then
            late=1 grace=$((now + KILL_AFTER))
            trap '' TERM
            kill -TERM 0
        elif [ -n "$late" ] && [ "$now" -ge "$grace" ]; then
            kill -KILL "$running" 2>/dev/null
        fi
    done
    wait "$running"
    code=$?
}
if [ -z "$python" ]; then python=$(command -v python3 || command -v python); fi
if [ -n "$python" ] && "$python" -c "$make" "$environment" > /dev/null 2> "$SOUK_WORK_DIR/.environment-error"; then
    VIRTUAL_ENV=$environment PATH=$environment/bin${programs:+:$programs}:$PATH
    export VIRTUAL_ENV PATH
elif [ -n "$is_needed" ]; then
    cat "$SOUK_WORK_DIR/.environment-error" 2>/dev/null
    say 'requirements: no Python environment can be made here'
    fail 1 'requirements: no Python environment can be made here; name an image with python3 and its venv module'
fi
rm -f "$SOUK_WORK_DIR/.environment-error"
step=0
while [ "$step" -lt "$total" ]; do
    step=$((step + 1))
    name=$1 line=$2 shown=$3
    shift 3
    say "$name: $shown"
    at=$(date +%s)
    bash -c "$line" < /dev/null &
    running=$!
    wait_for_step
    seconds=$(($(date +%s) - at))
    if [ -n "$late" ]; then
        say "$name took too long: all steps before the command have $seconds_max s"
        fail 124 "$name took too long: all steps before the command have $seconds_max s; it did not end: $shown"
    fi
    say "$name ended with exit code $code after $seconds s"
    if [ -n "$stopped" ]; then exit 143; fi
    if [ "$code" -ne 0 ]; then fail "$code" "$name ended with exit code $code: $shown"; fi
done
trap - TERM
exec "$@"
""".replace("KILL_AFTER", str(KILL_AFTER_SECONDS))


@dataclass(frozen=True)
class Step:
    """One thing that is done before the command."""

    name: str  # as the log and a failure call it
    line: str  # for bash


@dataclass(frozen=True)
class Launch:
    """What stands before a command."""

    steps: Sequence[Step]
    environment: str  # where the attempt's Python environment is made, as the program sees it
    python: str = ""  # the interpreter below it; empty: what the path has
    needs_python: bool = False  # without an environment the attempt fails; else only pip is missing
    programs: Sequence[str] = field(default=())  # folders of programs that come before the path's
    seconds_max: int = SETUP_SECONDS_MAX


def setup_steps(lines: Sequence[str]) -> list[Step]:
    """The lines of `setup`, numbered."""
    return [Step(f"setup {number} of {len(lines)}", line) for number, line in enumerate(lines, start=1)]


def launch_command(launch: Launch, command: Sequence[str]) -> list[str]:
    """What is started in the command's place."""
    words = [launch.python, MAKE_ENVIRONMENT, launch.environment, "1" if launch.needs_python else ""]
    words += [":".join(launch.programs), str(launch.seconds_max), str(len(launch.steps))]
    for step in launch.steps:
        words += [step.name, step.line, shown_line(step.line)]
    return ["sh", "-c", SCRIPT, "souk-setup", *words, *command]


def shown_line(line: str) -> str:
    """A line as the log and a JSON text can hold it: one line, its beginning."""
    short = line if len(line) <= SHOWN_CHARACTERS_MAX else line[:SHOWN_CHARACTERS_MAX] + "..."
    return json.dumps(short)[1:-1]
