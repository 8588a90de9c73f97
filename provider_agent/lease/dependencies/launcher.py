"""The small shell program that stands before a command with `setup` or `requirements`, in its sandbox.

1. make a Python environment of the attempt's own, on top of the interpreter that it finds
2. install the requirements into it
3. run each line of `setup` by bash, one after the other
4. become the command: the same process, so that signals reach it as without a setup

Each step is a line in the log before and after it. A step that fails, or all before the command when they take longer
than SETUP_SECONDS_MAX, end the attempt with a `failed` event that names it. After a SIGTERM, also one to the launcher
alone as a container's init sends it, what runs is ended and nothing more starts: exit code 143.

It is POSIX shell because an image of a customer's need not have Python. What a line exports ends with it: variables for
the command belong into `env`. The environment is the attempt's own, and goes with its work folder; what the
requirements installed may be packed before anything else runs, for later jobs on this node (environments.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from provider_agent.executors.base import Executor, LaunchSpec
from provider_agent.lease.dependencies.environments import KeptEnvironment
from provider_agent.lease.dependencies.packing import BASE_PATHS_NAME
from provider_agent.lease.dependencies.requirements import install_line, reuse_line, shown_install
from provider_agent.lease.workfolder import ENVIRONMENT_NAME
from provider_agent.protocol import Program

SETUP_SECONDS_MAX = 3600  # of everything before the command together
KILL_AFTER_SECONDS = 10  # from SIGTERM to SIGKILL, of a step that took too long
SHOWN_CHARACTERS_MAX = 200

# Run by the interpreter that is there already: the new environment sees all that this one does (torch among it), and
# what is installed into it later comes first. That includes an image's PYTHONPATH, which pip, isolated, would not see;
# but no folder below the work folder, which is the job's. `pip` and `torchrun` are small scripts, so that they run by
# it.
MAKE_ENVIRONMENT = f"""
import sys
sys.path[:] = [each for each in sys.path if each]  # without the work folder, which may have a folder `venv`
import os
folder = sys.argv[1]
work = os.path.join(os.path.dirname(os.path.realpath(folder)), "")
given = [os.path.realpath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep)]  # '': where it runs
inside = [each for each in given if os.path.join(each, "").startswith(work)]
sys.path[:] = [each for each in sys.path if os.path.realpath(each) not in inside]
import importlib.util, venv
is_nested = sys.prefix != sys.base_prefix
has_pip = importlib.util.find_spec("pip") is not None
venv.EnvBuilder(clear=True, symlinks=True, with_pip=not has_pip, system_site_packages=not is_nested).create(folder)
name = "python%d.%d" % sys.version_info[:2]
below = [each for each in sys.path if os.path.basename(each) in ("site-packages", "dist-packages")]
more = [each for each in sys.path if os.path.realpath(each) in given and each not in below]
with open(os.path.join(folder, "lib", name, "site-packages", "{BASE_PATHS_NAME}"), "w") as out:
    out.writelines("import site; site.addsitedir(%r)\\n" % each for each in below)
    out.writelines("import sys; %r in sys.path or sys.path.append(%r)\\n" % (each, each) for each in more)
for script, module in (("pip", "pip"), ("pip3", "pip"), ("torchrun", "torch.distributed.run")):
    if importlib.util.find_spec(module.partition(".")[0]) is None and module != "pip":
        continue
    path = os.path.join(folder, "bin", script)
    with open(path, "w") as out:
        out.write('#!/bin/sh\\nexec "%s/bin/python" -m %s "$@"\\n' % (folder, module))
    os.chmod(path, 0o755)
"""

# Arguments: interpreter ('' for what the path has), the program above, the environment's folder, whether it is needed,
# seconds in all, number of steps; for each step what it is called, its line, and that as it stands in the log and in
# JSON; then the command.
#
# Whatever takes time runs in the background, because a shell runs its trap only once what is in the foreground ended.
# The trap only takes a note: what was started between a look at it and the signal is then ended like what ran before.
SCRIPT = r"""
python=$1 make=$2 environment=$3 is_needed=$4 seconds_max=$5 total=$6
shift 6
late= stopped= running= kill_at=
say() { printf '[souk] %s\n' "$*"; }
fail() {  # exit code, message as JSON
    printf '{"event":"failed","at":%s,"message":"%s"}\n' "$(date +%s)" "$2" >> "$SOUK_EVENTS"
    exit "$1"
}
end_if_stopped() { if [ -n "$stopped" ]; then exit 143; fi; }
fail_if_late() {  # name, what did not end as JSON
    if [ -z "$late" ]; then return; fi
    say "$1 took too long: everything before the command has $seconds_max s"
    fail 124 "$1 took too long: everything before the command has $seconds_max s; it did not end: $2"
}
trap 'stopped=1' TERM
began=$(date +%s)
pause=1
if sleep 0.01 2>/dev/null; then pause=0.1; fi
wait_for_running() {  # sets code
    while kill -0 "$running" 2>/dev/null; do
        now=$(date +%s)
        if [ -z "$stopped" ] && [ $((now - began)) -ge "$seconds_max" ]; then late=1; fi
        if [ -n "$stopped$late" ] && [ -z "$kill_at" ]; then
            kill_at=$((now + KILL_AFTER))
            trap '' TERM
            kill -TERM 0
        elif [ -n "$late" ] && [ "$now" -ge "$kill_at" ]; then
            kill -KILL "$running" 2>/dev/null
        fi
        sleep "$pause"
    done
    wait "$running"
    code=$?
}
if [ -z "$python" ]; then python=$(command -v python3 || command -v python); fi
code=1
end_if_stopped
if [ -n "$python" ]; then
    "$python" -c "$make" "$environment" < /dev/null > /dev/null 2> "$environment-error" &
    running=$!
    wait_for_running
fi
end_if_stopped
fail_if_late 'the Python environment' 'making it'
if [ "$code" -eq 0 ]; then
    VIRTUAL_ENV=$environment PATH=$environment/bin:$PATH
    export VIRTUAL_ENV PATH
elif [ -n "$is_needed" ]; then
    cat "$environment-error" 2>/dev/null
    say 'requirements: no Python environment can be made here'
    fail 1 'requirements: no Python environment can be made here; name an image with python3 and its venv module'
fi
rm -f "$environment-error"
step=0
while [ "$step" -lt "$total" ]; do
    step=$((step + 1))
    name=$1 line=$2 shown=$3 shown_json=$4
    shift 4
    end_if_stopped
    say "$name: $shown"
    at=$(date +%s)
    bash -c "$line" < /dev/null &
    running=$!
    wait_for_running
    fail_if_late "$name" "$shown_json"
    say "$name ended with exit code $code after $(($(date +%s) - at)) s"
    end_if_stopped
    if [ "$code" -ne 0 ]; then fail "$code" "$name ended with exit code $code: $shown_json"; fi
done
trap - TERM
end_if_stopped
exec "$@"
""".replace("KILL_AFTER", str(KILL_AFTER_SECONDS))


@dataclass(frozen=True)
class Step:
    """One thing that is done before the command."""

    name: str  # as the log and a failure call it
    line: str  # for bash
    shown: str = ""  # in its place in the log, where the line is ours and says little


@dataclass(frozen=True)
class Launch:
    """What stands before a command."""

    steps: Sequence[Step]
    environment: str  # where the attempt's Python environment is made, as the program sees it
    python: str = ""  # the interpreter below it; empty: what the path has
    needs_python: bool = False  # without an environment the attempt fails; else only pip is missing
    seconds_max: int = SETUP_SECONDS_MAX


def with_dependencies(
    executor: Executor, program: Program, spec: LaunchSpec, kept: KeptEnvironment | None = None
) -> LaunchSpec:
    """The same start, with the job file's `setup` and `requirements` before it; unchanged where it has neither.

    `kept`: what this node has of the environment that the requirements make; None where it keeps none for this job.
    """
    if not program.command or (program.setup is None and program.requirements is None):
        return spec
    seen_work = executor.seen_work(spec.folder)
    steps = setup_steps(program.setup or [])
    if program.requirements is not None:
        line = install_line(program.requirements, spec.work, seen_work)
        shown = shown_install(program.requirements) or line
        if kept is not None:
            entry = executor.seen_cache(kept.entry) if kept.entry is not None else ""
            line = reuse_line(line, kept, seen_entry=entry, seen_work=seen_work)
            spec = replace(spec, cache=kept.entry)
        steps = [Step("requirements", line, shown), *steps]
    launch = Launch(
        steps=steps,
        environment=f"{seen_work}/{ENVIRONMENT_NAME}",
        python="" if program.image else executor.python(),
        needs_python=program.requirements is not None,
    )
    return replace(spec, argv=launch_command(launch, spec.argv))


def setup_steps(lines: Sequence[str]) -> list[Step]:
    """The lines of `setup`, numbered."""
    return [Step(f"setup {number} of {len(lines)}", line) for number, line in enumerate(lines, start=1)]


def launch_command(launch: Launch, command: Sequence[str]) -> list[str]:
    """What is started in the command's place."""
    words = [launch.python, MAKE_ENVIRONMENT, launch.environment, "1" if launch.needs_python else ""]
    words += [str(launch.seconds_max), str(len(launch.steps))]
    for step in launch.steps:
        shown = shown_line(step.shown or step.line)
        words += [step.name, step.line, shown, json.dumps(shown)[1:-1]]
    return ["sh", "-c", SCRIPT, "souk-setup", *words, *command]


def shown_line(line: str) -> str:
    """The beginning of a line, as one line of the log: what cannot be printed, a line's end too, is escaped."""
    short = line if len(line) <= SHOWN_CHARACTERS_MAX else line[:SHOWN_CHARACTERS_MAX] + "..."
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in short)
