"""Writes the committed results into README.md and benchmarks/README.md, between their markers; a figure is never typed.

python -m benchmarks.figures            rewrite both
python -m benchmarks.figures --check    exit 1 and name the files that differ from the results
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS, read

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- figures: begin", "<!-- figures: end -->"

Figures = dict[str, Any]


def overhead(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    low, high = f["step_overhead_percent_range"]
    first_low, first_high = f["first_step_added_s_range"]
    return [
        (
            "steady step time under Souk over bare torchrun",
            f"{f['step_overhead_percent']:+.1f} % (rounds {low:+.1f} to {high:+.1f}; {f['bare_step_ms']} ms bare)",
            "within 2 %",
        ),
        (
            "confirmed launch to first step, over bare torchrun, warm node",
            (
                f"{f['first_step_added_s']:+.1f} s (rounds {first_low:+.1f} to {first_high:+.1f}; "
                f"{f['bare_first_step_s']} s bare)"
            ),
            "under 3 s more",
        ),
    ]


def matching(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    fleet = f"{f['nodes']:,} nodes"
    return [
        (f"one match over {fleet}", f"{f['match_p50_ms']} ms median, {f['match_p99_ms']} ms p99", "p99 under 100 ms"),
        (
            f"a batch of {f['batch_jobs']:,} jobs of {f['batch_classes']} kinds over {fleet}, without the database",
            f"{f['placements_per_second']:,} placements/s",
            "100/s",
        ),
    ]


def ledger(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    return [
        (
            "hold and settlement pairs, durable, clients on the same cores",
            f"{f['hold_settle_per_s_1']:,.0f}/s on one connection, {f['hold_settle_per_s_8']:,.0f}/s on eight",
            "250/s",
        ),
        ("ledger transfers in batches", f"{f['batched_transfers_per_s']:,.0f}/s", "20,000/s"),
    ]


def sync(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    rows = []
    for agents in sorted(int(key.rsplit("_", 1)[1]) for key in f if key.startswith("wake_p50_ms_")):
        what = f"waking one of {agents:,} agents that wait, sender on the same cores"
        figure = (
            f"{f[f'wake_p50_ms_{agents}']} ms median, {f[f'wake_p99_ms_{agents}']} ms p99; "
            f"{f[f'beats_per_s_{agents}']:,.0f} beats/s, {f[f'held_memory_mib_{agents}']:.0f} MiB"
        )
        rows.append((what, figure, "-"))
    return rows


ROWS: dict[str, Callable[[Figures], list[tuple[str, str, str]]]] = {
    "overhead": overhead,
    "matching": matching,
    "ledger": ledger,
    "sync": sync,
}


def table(names: list[str]) -> str:
    """All rows of these results as Markdown; a result that was never made is left out, not guessed."""
    lines = ["| What | Figure | Goal | Made |", "|---|---|---|---|"]
    for name in names:
        if not (RESULTS / f"{name}.json").is_file():
            continue
        result = read(name)
        machine = result["machine"]
        made = f"{result['at']}, {machine['cores']} cores of {machine['cpu']}"
        lines += [f"| {what} | {figure} | {goal} | {made} |" for what, figure, goal in ROWS[name](result["figures"])]
    return "\n".join(lines)


def rendered(page: Path) -> str:
    """The page with its figures as the results have them."""
    text = page.read_text()
    begin, end = text.index("\n", text.index(BEGIN)) + 1, text.index(END)
    return text[:begin] + table(list(ROWS)) + "\n" + text[end:]


def main() -> int:
    """Rewrite, or compare."""
    pages = [ROOT / "README.md", ROOT / "benchmarks/README.md"]
    stale = [page for page in pages if rendered(page) != page.read_text()]
    if "--check" not in sys.argv:
        for page in stale:
            page.write_text(rendered(page))
        return 0
    for page in stale:
        print(f"{page.relative_to(ROOT)} differs from benchmarks/results: run python -m benchmarks.figures")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
