"""Coverage of lines and branches, a row a package, from coverage's own JSON report: `make coverage` writes it.

A package is a folder of at most two names, such as billing/chain; the row of a top folder has all below it. Of two such
files the second is compared with the first:

    python -m tests.coverage_table .cache/coverage/report.json --write benchmarks/results/coverage.json
    python -m tests.coverage_table before.json --compare benchmarks/results/coverage.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path, PurePath
from typing import Any, Final

NAMES_MAX: Final = 2
# name here -> name in the report
COUNTS: Final = {
    "lines": "num_statements",
    "lines_covered": "covered_lines",
    "branches": "num_branches",
    "branches_covered": "covered_branches",
}

Table = dict[str, dict[str, int]]


def by_package(report: dict[str, Any]) -> Table:
    """Package -> its four counts, "all" first."""
    table: Table = {}
    for path, file in sorted(report["files"].items()):
        folders = PurePath(path).parts[:-1]
        for package in sorted({"all", folders[0], "/".join(folders[:NAMES_MAX])}):
            row = table.setdefault(package, dict.fromkeys(COUNTS, 0))
            for name, theirs in COUNTS.items():
                row[name] += file["summary"][theirs]
    return table


def percent(row: dict[str, int] | None, kind: str) -> float | None:
    """How much of its lines or branches ran; None: there is no such package, or it has none."""
    if row is None or row[kind] == 0:
        return None
    return 100 * row[f"{kind}_covered"] / row[kind]


def compared(before: Table, after: Table) -> str:
    """A Markdown table of both, one row a package that either has."""
    lines = ["| Package | Lines before | Lines now | Branches before | Branches now |", "|---|---|---|---|---|"]
    for package in sorted(before.keys() | after.keys()):
        figures = [percent(table.get(package), kind) for kind in ("lines", "branches") for table in (before, after)]
        shown = ["—" if figure is None else f"{figure:.1f} %" for figure in figures]
        lines.append(f"| {package} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="coverage's JSON report, or with --compare an earlier table")
    parser.add_argument("--write", type=Path, help="where the table goes, as JSON")
    parser.add_argument("--compare", type=Path, help="a later table")
    chosen = parser.parse_args()
    found = json.loads(chosen.file.read_text())
    if chosen.compare:
        sys.stdout.write(compared(found, json.loads(chosen.compare.read_text())) + "\n")
        return 0
    table = by_package(found)
    if chosen.write:
        chosen.write.write_text(json.dumps(table, indent=1) + "\n")
    sys.stdout.write(compared(table, table) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
