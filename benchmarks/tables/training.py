"""The rows of training: speed, memory, planned steps, gangs that lose nodes."""

from __future__ import annotations

from benchmarks.tables.serving import Figures


def goodput(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    low, high = f["kept_over_restart_range"]
    jobs = f"gang of {f['nodes']}, {f['steps']} steps, {f['kills']} nodes killed"
    away = [
        f"{f[f'{kind}_kill_to_step_s_median']} s median, {f[f'{kind}_kill_to_step_s_max']} s at most"
        for kind in ("kept", "restart")
    ]
    rows = [
        (
            f"{jobs}: steps a second of wall time, the others kept over begun anew as a whole",
            (
                f"{f['kept_over_restart']}x (rounds {low} to {high}; {f['kept_steps_per_second']} and"
                f" {f['restart_steps_per_second']} steps/s)"
            ),
            "1.5x",
        ),
        ("the same: from a kill to the next step", f"{away[0]}; begun anew: {away[1]}", "p99 under 5 s"),
    ]
    if "torchft_steps_per_second" in f:
        seconds = max(f["torchft_kill_to_step_s"])
        figure = f"{f['torchft_steps_per_second']} steps/s; {seconds} s at most from a kill to a step of the others"
        rows.append(("the same kills under torchft, without a marketplace, restarted at once", figure, "-"))
    return rows


def gpu(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    rows = []
    for shape, all_cases in f["shapes"].items():
        cases = {
            name: case for name, case in all_cases.items() if "mfu" in case
        }  # others ended early: results/ says how
        others = max(
            (cases[name]["tokens_per_second"] for name in ("bare FSDP2", "accelerate") if name in cases), default=0
        )
        for name, case in cases.items():
            beside = (
                f"; {case['tokens_per_second'] / others:.2f} of the faster other" if others and "ours" in name else ""
            )
            figure = (
                f"{case['tokens_per_second']:,} tokens/s, {100 * case['mfu']:.0f} %, {case['peak_gib']} GiB{beside}"
            )
            goal = "1.0 of the fastest" if beside else "-"
            what = f"training on one {f['gpu']}, {shape.upper()} shape, {name}: speed, share of its bfloat16, memory"
            rows.append((what, figure, goal))
    return rows


def train(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    speeds = ", ".join(f"{name} {speed:,}" for name, speed in f["tokens_per_second"].items())
    low, high = f["range"]
    ratio = f["fastest_of_ours_over_fastest_of_others"]
    return [
        (f"tokens/s of a training on processors, 6 million parameters, {f['ranks']} ranks", speeds, "-"),
        ("the same: the fastest of ours over the fastest other", f"{ratio} (rounds {low} to {high})", "1.0"),
    ]


def train_shares(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    low, high = f["range"]
    what = "tokens/s of the same with one rank at about half speed: shares by measured speed over equal ones"
    return [(what, f"{f['measured_over_equal']} (rounds {low} to {high})", "1.4")]


def train_saves(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    saves, methods = f["saves"], ("full", "LoRA", "QLoRA")
    low, high = saves["range"]
    what = f"seconds that {saves['ranks']} ranks wait for a save of {saves['gib']} GiB: torch's own `save` over ours"
    ratio = f"{saves['synchronous_over_blocked']}x (rounds {low} to {high})"
    sizes = [f"{name} {f[name]['checkpoint_bytes'] / 1e6:,.0f}" for name in methods]
    weights = [f"{name} {f[name]['weights_bytes'] / 1e6:,.0f}" for name in methods]
    return [
        (what, f"{saves['synchronous_s']} s over {saves['blocked_s']} s: {ratio}", "10x"),
        ("MB of a checkpoint of 110 million parameters", ", ".join(sizes), "-"),
        ("MB of the weights that such a training holds", ", ".join(weights), "-"),
    ]


def train_plans(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    taken = f["taken_of_needed"]
    out = f"{f['out_of_memory']} out of memory; {taken['median']} of it taken (median), {taken['most']} at most"
    return [(f"{f['plans']} drawn trainings on a processor, in the memory that the planner asks for", out, "none")]


def train_loading(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    return [
        (
            f"memory of each of {f['ranks']} ranks while {row['parameters'] / 1e9:.1f} billion parameters are read",
            (
                f"{row['peak_bytes'] / 1e9:.1f} GB at most; its part is {row['kept_bytes'] / 1e9:.1f},"
                f" a block {row['block_bytes'] / 1e9:.1f}, all {4 * row['parameters'] / 1e9:.1f}"
            ),
            "its part and a block",
        )
        for row in f["rows"]
    ]


def step_times(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    what = f"seconds of a training step on processors: planned over measured, {len(f['cases'])} cases"
    error = f"error {f['median_error']:.1%} median, {f['largest_error']:.0%} at most"
    return [(what, f"{f['median_ratio']} median; {error}", "-")]


def tokenising(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    return [
        (
            f"tokens of {row['mib']} MiB of {'zeros in one line' if row['kind'] == 'sparse' else 'text'}",
            f"{row['mib_per_second']} MiB/s, at most {row['peak_mib']} MiB of memory",
            "memory does not grow",
        )
        for row in f["rows"]
    ]
