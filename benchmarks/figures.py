"""Writes the committed results into README.md and benchmarks/README.md, between their markers; a figure is never typed.

python -m benchmarks.figures            rewrite both
python -m benchmarks.figures --check    exit 1 and name the files that differ from the results
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from benchmarks.record import RESULTS, read
from benchmarks.tables.serving import (
    Figures,
    autoscale,
    autoscale_in_short,
    gateway,
    gateway_in_short,
    inference_checks,
    slow_visitors,
    tunnels,
)
from benchmarks.tables.training import (
    goodput,
    gpu,
    step_times,
    tokenising,
    train,
    train_loading,
    train_plans,
    train_saves,
    train_shares,
)

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- figures: begin", "<!-- figures: end -->"

Rows = dict[str, Callable[[Figures], list[tuple[str, str, str]]]]


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
            f"hold and settlement pairs, durable, {f['clients']} clients on the same cores",
            (
                f"{f['hold_settle_per_s']:,.0f}/s, p99 {f['hold_settle_p99_ms']} ms, {f['deadlocks']} deadlocks; "
                f"{f['hold_settle_ratio']} of bare SQL"
            ),
            "half of bare SQL, 0 deadlocks",
        ),
        (
            f"ledger transfers in batches of {f['batch']}",
            (
                f"{f['batched_transfers_per_s']:,.0f}/s, p99 {f['batched_transfers_p99_ms']} ms; "
                f"{f['batched_transfers_ratio']} of bare SQL"
            ),
            "half of bare SQL",
        ),
        ("receipts verified and stored, one process", f"{f['receipts_per_s']:,.0f}/s", ""),
    ]


def gas(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal; the goals are what a contract without roles, delays and caps was measured to take."""
    job, design = f["job"], f["design"]
    rows = []
    for count, figures in sorted(f["payouts"].items(), key=lambda item: int(item[0])):
        providers = f"payouts to {int(count):,} provider" + ("s" if int(count) > 1 else "")
        rows += [
            (
                f"gas of a root of {providers}: the first, one after it, that one per provider",
                f"{figures['root_first']:,}, {figures['root_later']:,}, {figures['root_later_per_payout']:,.0f}",
                f"{design['root_first']:,}, {design['root_later']:,}",
            ),
            (
                f"gas of a claim among {providers}, to a new holder and to one who holds the token",
                f"{figures['claim_new_holder']:,}, {figures['claim_later']:,}",
                f"{design['claim_new_holder']:,}, {design['claim_later']:,}",
            ),
        ]
    return [
        *rows,
        (
            "gas of a job in escrow mode: hold, settling a lease (its first, a later receipt), finalize, close, refund",
            (
                f"{job['hold_of_named_providers']:,}, {job['settle_first']:,} ({job['settle_later']:,}), "
                f"{job['finalize']:,}, {job['begin_close']:,}, {job['refund_closed']:,}"
            ),
            f"{design['hold']:,}, {design['settle']:,}, -, -, -",
        ),
    ]


def fleet(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    return [row for count in sorted(map(int, f["sizes"])) for row in _fleet_of(f, count)]


def fleet_in_short(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    return _fleet_of(f, max(map(int, f["sizes"])))


def _fleet_of(f: Figures, count: int) -> list[tuple[str, str, str]]:
    size, nodes = f["sizes"][str(count)], f"{count:,} waiting nodes"
    return [
        (
            f"{nodes}: all of the marketplace, on one core",
            f"{size['held_cpu_percent']} % of a core, sync process {size['held_sync_memory_mib']} MiB",
            "10,000 under one core",
        ),
        (
            f"{nodes}: a sync that has news",
            f"{size['news_p50_ms']} ms median, {size['news_p99_ms']} ms p99",
            "p99 under 50 ms",
        ),
        (
            f"{nodes}: confirmed launch to signed assignment at the agent",
            f"{size['assignment_p50_ms']} ms median, {size['assignment_p99_ms']} ms p99",
            "under 1 s",
        ),
        (f"{nodes}: until all are answered that come back within 15 s", f"{size['all_back_s']} s", "-"),
    ]


def client(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    rows = []
    for name, command in sorted(f["commands"].items(), key=lambda item: item[1].get("help_s", float("inf"))):
        figure = (
            f"skipped: {command['skipped']}"
            if "skipped" in command
            else f"{command['help_s']} s; {command['installed_mib']} MiB in {command['packages']} packages"
        )
        rows.append((f"`--help` of {name} ({command['requirement']}), and its installed size", figure, "-"))
    return rows


def client_in_short(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    seconds = {name: command["help_s"] for name, command in f["commands"].items() if "help_s" in command}
    ours = seconds.pop("souk")
    fastest, slowest = min(seconds, key=seconds.__getitem__), max(seconds, key=seconds.__getitem__)
    peers = f"{len(seconds)} peers {seconds[fastest]} ({fastest}) to {seconds[slowest]} s ({slowest})"
    return [("`souk --help`, warm", f"{ours} s; {peers}", "-")]


def verification(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    found = ", ".join(f"{added} ms: {share:.0%}" for added, share in f["relay_found_by_added_ms"].items())
    return [
        (
            "a check of one device, to the server (one core)",
            f"{f['cpu_server_ms']} ms for a processor share, {f['gpu_server_ms']} ms for an 80 GB GPU",
            "-",
        ),
        (
            "the same, on the wire",
            f"{f['cpu_wire_mib']} MiB for a processor share, {f['gpu_wire_mib']} MiB for a GPU",
            "-",
        ),
        (
            "a check, to a processor share",
            (
                f"{f['cpu_chain_s']} s of products, {f['cpu_fill_s']} s to fill {f['cpu_memory_mib']} MiB, "
                f"{1000 * f['cpu_read_s']:.0f} ms to read it back"
            ),
            "-",
        ),
        (f"relays found by one check, by the round trip they add (bound {f['recall_ms_max']} ms)", found, "-"),
    ]


def gpu_checks(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    low, high = f["chain_s_range"]
    return [
        (
            f"a check of one {f['gpu']}: its products, by the node's clock (bound)",
            f"{f['chain_s']:.2f} s ({low:.2f} to {high:.2f}; {f['chain_s_max']:.2f} s)",
            "-",
        ),
        (
            f"the same: {f['filled_mib']:,} MiB read back (bound), and made anew",
            f"{1000 * f['read_s']:.0f} ms ({1000 * f['read_s_max']:.0f} ms), {f['fill_s']:.1f} s",
            "-",
        ),
    ]


def lending(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    memory = f"{f['rss_mb']} MB resident, {f['pss_mb']} MB with shared pages divided"
    return [
        ("memory of the agent at rest", memory, "under 60 MB"),
        (
            f"processor time of the agent at rest, over {f['seconds']} s",
            f"{f['cpu_percent_of_a_core']} % of a core",
            "under 0.1 %",
        ),
    ]


def isolation(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    what = {
        "step": "a training step",
        "calls": "system calls a second",
        "write": "writing to the work folder, MB/s with fsync",
        "start": "from the order (for the engine's own: the program `docker run`) to the first line",
    }
    names = {"lease": "a lease's container", "gvisor": "a lease's container under gVisor"}
    rows = []
    for kind, name in names.items():
        for figure, label in what.items() if kind in f["kinds"] else ():
            low, high = f["kinds"][kind][f"{figure}_percent_range"]
            rows.append(
                (
                    f"{label} in {name}, over the engine's own",
                    f"{f['kinds'][kind][f'{figure}_percent']:+.1f} % (rounds {low:+.1f} to {high:+.1f})",
                    "-",
                )
            )
    return rows


def payouts(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    rows = []
    for count, run in sorted(f["runs"].items(), key=lambda item: int(item[0])):
        what = f"a payout run of {int(count):,} new providers, {f['leases_per_provider']} leases each"
        rows.append((f"{what}: reserved, then sent", f"{run['reserve_s']:.1f} s, {run['send_s']:.1f} s", ""))
    tree = f"the tree of a payout root with {f['tree_wallets']:,} wallets, and one proof out of it"
    return [*rows, (tree, f"{f['tree_s']:.2f} s, {f['proof_ms']:.2f} ms", "")]


def challenge_windows(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    return [
        (
            f"a settlement with same-day pay, where the provider's record is {int(count):,} settlements",
            f"{run['settle_ms']:.0f} ms, {run['settle_without_ms']:.0f} ms without",
            "",
        )
        for count, run in sorted(f["records"].items(), key=lambda item: int(item[0]))
    ]


def solvency(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    rows = []
    for count, run in sorted(f["reports"].items(), key=lambda item: int(item[0])):
        what = f"a solvency report over {int(count):,} accounts"
        rows += [
            (f"{what}: sealed, and how much is stored", f"{run['publish_s']:.1f} s, {run['stored_mib']:.1f} MiB", ""),
            (f"{what}: a proof out of it made, checked", f"{run['proof_ms']:.0f} ms, {run['check_ms']:.1f} ms", ""),
        ]
    return rows


def isolation_in_short(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    return [row for row in isolation(f) if row[0].startswith("a training step")]


ROWS: Rows = {
    "overhead": overhead,
    "goodput": goodput,
    "matching": matching,
    "ledger": ledger,
    "gas": gas,
    "payouts": payouts,
    "challenge_windows": challenge_windows,
    "solvency": solvency,
    "fleet": fleet,
    "client": client,
    "verification": verification,
    "gpu_checks": gpu_checks,
    "gpu": gpu,
    "train": train,
    "train_shares": train_shares,
    "train_saves": train_saves,
    "train_loading": train_loading,
    "train_plans": train_plans,
    "tokenising": tokenising,
    "step_times": step_times,
    "lending": lending,
    "isolation": isolation,
    "slow_visitors": slow_visitors,
    "gateway": gateway,
    "tunnels": tunnels,
    "autoscale": autoscale,
    "inference_checks": inference_checks,
}


IN_SHORT = {name: ROWS[name] for name in ("overhead", "matching", "ledger", "lending")} | {
    "isolation": isolation_in_short,
    "fleet": fleet_in_short,
    "client": client_in_short,
    "gateway": gateway_in_short,
    "autoscale": autoscale_in_short,
    "inference_checks": inference_checks,
}
PAGES = {ROOT / "README.md": IN_SHORT, ROOT / "benchmarks/README.md": ROWS}


def table(rows: Rows) -> str:
    """These rows as Markdown, and where and when they were made; a result that was never made is left out."""
    results = {name: read(name) for name in rows if (RESULTS / f"{name}.json").is_file()}
    lines = ["| What | Figure | Goal |", "|---|---|---|"]
    for name, result in results.items():
        lines += [f"| {what} | {figure} | {goal} |" for what, figure, goal in rows[name](result["figures"])]
    made: dict[str, list[str]] = {}
    for name, result in results.items():
        machine = result["machine"]
        made.setdefault(f"{machine['cores']} cores of {machine['cpu']}", []).append(f"{name} {result['at']}")
    lines_made = [textwrap.fill(f"Made on {where}: {', '.join(what)}.", 120) for where, what in made.items()]
    return "\n".join([*lines, "", *lines_made])


def rendered(page: Path, rows: Rows) -> str:
    """The page with its figures as the results have them."""
    text = page.read_text()
    begin, end = text.index("\n", text.index(BEGIN)) + 1, text.index(END)
    return text[:begin] + table(rows) + "\n" + text[end:]


def main() -> int:
    """Rewrite, or compare."""
    stale = [page for page, rows in PAGES.items() if rendered(page, rows) != page.read_text()]
    if "--check" not in sys.argv:
        for page in stale:
            page.write_text(rendered(page, PAGES[page]))
        return 0
    for page in stale:
        print(f"{page.relative_to(ROOT)} differs from benchmarks/results: run python -m benchmarks.figures")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
