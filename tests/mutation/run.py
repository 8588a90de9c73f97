"""Mutate, test, count: `python -m tests.mutation.run --help`. Runs with cosmic-ray's environment, not with the tests'.

Each mutant is one small mistake in one module: another operator, a number off by one, a decorator or an exception that
is gone. It is *killed* when a test fails or the tests take too long, else it *survived*. Mutants are made in a copy of
HEAD, so that the working tree stays as it is; what was tried is kept, and the next run goes on from there.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from cosmic_ray.commands.init import init
from cosmic_ray.mutating import mutate_and_test, mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.testing import run_tests
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkItem

from tests.mutation.targets import TARGETS, Target

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / ".cache" / "mutation"
RESULTS: Final = ROOT / "benchmarks" / "results" / "mutation.json"
TEST_SECONDS_MAX: Final = 600  # a mutant that never ends was noticed
GOAL: Final = 0.85


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the targets that were asked for; returns 1 where the tests fail without any mutant, or the goal is missed."""
    options = _options(arguments)
    commit = _output("git", "rev-parse", "--short=8", "HEAD")
    os.chdir(_copy_of_head())
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with _servers(options.python) as servers:
        for name in options.targets:
            print(f"== {name}", flush=True)
            found = _try(name, TARGETS[name], options, servers)
            if found is None:
                return 1
            kept[name] = {"commit": commit, "seed": options.seed, **found}
            RESULTS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    return _report(kept)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make mutants",
        description=__doc__,
        epilog="example: make mutants MUTANTS='holds settlement --sample 20'",
    )
    parser.add_argument(
        "targets", nargs="*", default=list(TARGETS), help=f"of {', '.join(TARGETS)}; all without a name"
    )
    parser.add_argument("--sample", type=int, default=0, help="so many mutants a target, drawn by the seed; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", default=str(ROOT / ".venv" / "bin" / "python"), help="that has the tests' packages")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.targets) - set(TARGETS))
    if unknown:
        parser.error(f"no target is called {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    return options


def _copy_of_head() -> Path:
    """The files of HEAD beside the working tree, without what an interrupted run left in them."""
    tree = FOLDER / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    _output("git", "archive", "--output", str(FOLDER / "head.tar"), "HEAD")
    _output("tar", "-xf", str(FOLDER / "head.tar"), "-C", str(tree))
    return tree


@contextmanager
def _servers(python: str) -> Iterator[subprocess.Popen[str]]:
    """The process that holds PostgreSQL and Redis; the tests find them by this process's environment."""
    command = [python, "-m", "tests.mutation.servers"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as servers:
        assert servers.stdin and servers.stdout
        os.environ.update(json.loads(servers.stdout.readline()))
        yield servers
        servers.stdin.close()


def _empty(servers: subprocess.Popen[str]) -> None:
    assert servers.stdin and servers.stdout
    print(file=servers.stdin, flush=True)
    if servers.stdout.readline().strip() != "empty":
        raise SystemExit("Redis could not be emptied between two runs.")


def _try(
    name: str, target: Target, options: argparse.Namespace, servers: subprocess.Popen[str]
) -> dict[str, Any] | None:
    """What became of a target's mutants; None where its tests fail without any."""
    tests = " ".join(shlex.quote(f"tests/{path}") for path in target.tests)
    command = f"{shlex.quote(options.python)} -m pytest -x -q -p no:cacheprovider {tests}"
    outcome, output = run_tests(command, TEST_SECONDS_MAX)
    if outcome != TestOutcome.SURVIVED:
        print(output[-4000:], f"\nThe tests of {name} fail without a mutant.", file=sys.stderr)
        return None
    survivors, outcomes = [], Counter[str]()
    with use_db(str(_session(name, target)), WorkDB.Mode.create) as work:
        if not work.num_work_items:
            init([Path(module) for module in target.modules], work, {})
        items = sorted((item for item in work.work_items if _counts(item.mutations[0])), key=_position)
        drawn = random.Random(options.seed).sample(items, min(options.sample or len(items), len(items)))
        known = dict(work.results)
        for number, item in enumerate(sorted(drawn, key=_position), 1):
            result = known.get(item.job_id)
            if result is None:
                _empty(servers)
                result = mutate_and_test(item.mutations, command, TEST_SECONDS_MAX)
                work.set_result(item.job_id, result)
            outcome = "killed" if result.is_killed else "survived"
            outcomes[outcome] += 1
            if not result.is_killed:
                survivors.append({"where": _where(item.mutations[0]), "diff": _changed(result.diff or "")})
            print(f"{number}/{len(drawn)} {outcome} {_where(item.mutations[0])}", flush=True)
    return {"mutants": len(items), "tried": len(drawn), "killed": outcomes["killed"], "survivors": survivors}


def _session(name: str, target: Target) -> Path:
    """Where a target's results are kept: another file once a module or a test of it has changed."""
    digest = hashlib.sha256()
    files = [Path(module) for module in target.modules] + [Path("tests") / path for path in target.tests]
    for file in sorted(each for path in files for each in ([path] if path.is_file() else path.rglob("*.py"))):
        digest.update(file.read_bytes())
    return FOLDER / f"{name}-{digest.hexdigest()[:12]}.sqlite"


def _counts(mutation: MutationSpec) -> bool:
    """Whether a mutant can change what the program does: annotations are never evaluated here, and it has to compile.

    The star before parameters that are given by name is taken for a multiplication.
    """
    if any(start <= mutation.start_pos < end for start, end in _annotations(mutation.module_path)):
        return False
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    mutated = mutate_code(mutation.module_path.read_text(), operator, mutation.occurrence)
    try:
        compile(mutated, str(mutation.module_path), "exec")
    except SyntaxError:
        return False
    return True


@cache
def _annotations(path: Path) -> list[Any]:
    """Where a module's annotations begin and end, as (line, column) pairs."""
    nodes: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes.append(node.returns)
        if isinstance(node, ast.arg | ast.AnnAssign):
            nodes.append(node.annotation)
    return [((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)) for node in nodes if node]


def _position(item: WorkItem) -> tuple[Any, ...]:
    mutation = item.mutations[0]
    return str(mutation.module_path), mutation.start_pos, mutation.operator_name, mutation.occurrence


def _where(mutation: MutationSpec) -> str:
    operator = mutation.operator_name.removeprefix("core/")
    return f"{mutation.module_path}:{mutation.start_pos[0]} {operator}"


def _changed(diff: str) -> list[str]:
    """The lines that differ, without their surroundings."""
    return [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def _report(results: dict[str, Any]) -> int:
    for name, row in sorted(results.items()):
        print(f"{name:16} {row['killed']:4} of {row['tried']:4} killed ({row['mutants']} mutants, {row['commit']})")
    killed, tried = (sum(row[key] for row in results.values()) for key in ("killed", "tried"))
    print(f"{'all':16} {killed:4} of {tried:4} killed: {killed / max(tried, 1):.1%} (goal {GOAL:.0%})")
    return 0 if killed >= GOAL * tried else 1


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
