"""Mutate, test, count: `python -m tests.mutation.run --help`. Runs with cosmic-ray's environment, not with the tests'.

Each mutant is one small mistake in one module: another operator, a number off by one, a decorator or an exception that
is gone. It is *killed* when a test fails or the tests take too long, else it *survived*. Mutants are made in a copy of
HEAD, so that the working tree stays as it is; what was tried is kept, and the next run goes on from there.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from cosmic_ray.commands.init import init
from cosmic_ray.mutating import mutate_code, use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkItem, WorkResult

from tests.mutation.reasons import reason_for
from tests.mutation.targets import GOAL, TARGETS, Target

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / ".cache" / "mutation"
RESULTS: Final = ROOT / "benchmarks" / "results" / "mutation.json"
# A mutant under which the tests take so much longer than without one was noticed; many wait for ever.
SLOWER_TIMES: Final = 5
TEST_SECONDS_LEAST: Final = 60
TEST_SECONDS_MAX: Final = 600


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the targets that were asked for; returns 1 where the tests fail without any mutant, or the goal is missed."""
    options = _options(arguments)
    commit = _output("git", "rev-parse", "--short=8", "HEAD")
    os.chdir(_copy_of_head())
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with _process(options.python, "servers") as servers:
        os.environ.update(servers.read())
        with _process(options.python, "forks") as forks:
            forks.read()
            for name in options.targets:
                print(f"== {name}", flush=True)
                tests = Tests(servers, forks, TARGETS[name].tests)
                if not _pass(name, tests):
                    return 1
                if options.again:
                    kept[name] = {**kept[name], "commit": commit, **_try_again(kept[name], TARGETS[name], tests)}
                else:
                    found = _try(name, TARGETS[name], options, tests)
                    kept[name] = {"commit": commit, "seed": options.seed, **found}
                for row in kept[name]["survivors"]:
                    row["why"] = reason_for(row)
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
    parser.add_argument("--again", action="store_true", help="only the survivors of the last result, after new tests")
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


class Process:
    """One of this folder's programs that run with the tests' packages: a line of JSON in, a line of JSON out."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def read(self) -> dict[str, Any]:
        """The next line that it prints."""
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())

    def ask(self, **question: Any) -> dict[str, Any]:
        """Its answer."""
        assert self._process.stdin
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return self.read()


@contextmanager
def _process(python: str, name: str) -> Iterator[Process]:
    """Ends when its input does."""
    command = [python, "-m", f"tests.mutation.{name}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        yield Process(process)
        process.stdin.close()


@dataclass
class Tests:
    """The tests of one target, on the servers that all runs share."""

    servers: Process
    forks: Process
    paths: tuple[str, ...]
    seconds_max: float = TEST_SECONDS_MAX

    def notice(self) -> tuple[bool, str]:
        """Whether one of them fails as the files are now, or they take too long; and what they printed."""
        self.servers.ask()
        ended = self.forks.ask(tests=[f"tests/{path}" for path in self.paths], seconds=self.seconds_max)
        return ended["code"] != 0, ended["output"]


def _pass(name: str, tests: Tests) -> bool:
    """Whether they do without a mutant; from then on they have a limit of their own."""
    start = time.monotonic()
    is_noticed, output = tests.notice()
    tests.seconds_max = max(TEST_SECONDS_LEAST, SLOWER_TIMES * (time.monotonic() - start))
    if is_noticed:
        print(output[-4000:], f"\nThe tests of {name} fail without a mutant.", file=sys.stderr)
    return not is_noticed


def _try(name: str, target: Target, options: argparse.Namespace, tests: Tests) -> dict[str, Any]:
    """What became of a target's mutants."""
    survivors = []
    with use_db(str(_session(name, target)), WorkDB.Mode.create) as work:
        items = _mutants(target, work)
        drawn = random.Random(options.seed).sample(items, min(options.sample or len(items), len(items)))
        known = dict(work.results)
        for number, item in enumerate(sorted(drawn, key=_position), 1):
            result = known.get(item.job_id)
            if result is None:
                result = _mutate(item.mutations[0], tests)
                work.set_result(item.job_id, result)
            if not result.is_killed:
                survivors.append(_survivor(item, result))
            _print(number, len(drawn), item, result)
    return {
        "mutants": len(items),
        "tried": len(drawn),
        "killed": len(drawn) - len(survivors),
        "survivors": survivors,
    }


def _try_again(before: dict[str, Any], target: Target, tests: Tests) -> dict[str, Any]:
    """The same where only the survivors are tried: after tests were added, and nothing else was changed."""
    wanted = {row["where"] for row in before["survivors"]}
    survivors = []
    with use_db(":memory:", WorkDB.Mode.create) as work:
        items = [item for item in _mutants(target, work) if _where(item.mutations[0]) in wanted]
        for number, item in enumerate(items, 1):
            result = _mutate(item.mutations[0], tests)
            row = _survivor(item, result)
            was_left = any((row["where"], row["diff"]) == (each["where"], each["diff"]) for each in before["survivors"])
            if was_left and not result.is_killed:
                survivors.append(row)
            _print(number, len(items), item, result)
    counted = {_where(item.mutations[0]) for item in items}
    gone = sum(row["where"] not in counted for row in before["survivors"])  # which do not count any more
    tried = before["tried"] - gone
    return {
        "mutants": before["mutants"] - gone,
        "tried": tried,
        "killed": tried - len(survivors),
        "survivors": survivors,
    }


def _mutants(target: Target, work: WorkDB) -> list[WorkItem]:
    if not work.num_work_items:
        init([Path(module) for module in target.modules], work, {})
    return sorted((item for item in work.work_items if _counts(item.mutations[0])), key=_position)


def _print(number: int, of: int, item: WorkItem, result: WorkResult) -> None:
    print(f"{number}/{of} {'killed' if result.is_killed else 'survived'} {_where(item.mutations[0])}", flush=True)


def _survivor(item: WorkItem, result: WorkResult) -> dict[str, Any]:
    return {"where": _where(item.mutations[0]), "diff": _changed(result.diff or "")}


def _mutate(mutation: MutationSpec, tests: Tests) -> WorkResult:
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    with use_mutation(mutation.module_path, operator, mutation.occurrence) as (before, after):
        is_noticed, output = tests.notice()
    return WorkResult(
        worker_outcome=WorkerOutcome.NORMAL,
        test_outcome=TestOutcome.KILLED if is_noticed else TestOutcome.SURVIVED,
        output=output,
        diff="\n".join(difflib.unified_diff(before.splitlines(), (after or before).splitlines(), n=0, lineterm="")),
    )


def _session(name: str, target: Target) -> Path:
    """Where a target's results are kept: another file once a module or a test of it has changed."""
    digest = hashlib.sha256()
    files = [Path(module) for module in target.modules] + [Path("tests") / path for path in target.tests]
    for file in sorted(each for path in files for each in ([path] if path.is_file() else path.rglob("*.py"))):
        digest.update(file.read_bytes())
    return FOLDER / f"{name}-{digest.hexdigest()[:12]}.sqlite"


def _counts(mutation: MutationSpec) -> bool:
    """Whether a mutant can change what the program does: annotations are never evaluated here, and it has to compile.

    The star before parameters that are given by name is taken for a multiplication: then they may be given by place.
    """
    if any(start <= mutation.start_pos < end for start, end in _annotations(mutation.module_path)):
        return False
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    source = mutation.module_path.read_text()
    try:
        mutated = ast.parse(mutate_code(source, operator, mutation.occurrence))
        compile(mutated, str(mutation.module_path), "exec")
    except SyntaxError:
        return False
    return _parameters_by_name(mutated) == _parameters_by_name(ast.parse(source))


def _parameters_by_name(tree: ast.Module) -> int:
    return sum(len(node.kwonlyargs) for node in ast.walk(tree) if isinstance(node, ast.arguments))


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
    for row in (row for target in results.values() for row in target["survivors"] if not row.get("why")):
        print(f"no reason for {row['where']}: {' '.join(row['diff'])}")
    print(f"{'all':16} {killed:4} of {tried:4} killed: {killed / max(tried, 1):.1%} (goal {GOAL:.0%})")
    return 0 if killed >= GOAL * tried else 1


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
