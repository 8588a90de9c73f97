"""report.html: one page without script, font or image from elsewhere; light or dark as the reader's system is.

Texts of samples, tasks and models are whatever a customer's files hold: each is escaped where it is written, and the
page's policy forbids the browser to run or load anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from runtimes.evaluate.compare import Comparison, Sample
from runtimes.evaluate.drawing import Bar, Point, bar_chart, cut, figure_text, sample_map
from runtimes.evaluate.results import ModelResult

REPORT_FILE = "report.html"
MAP_SAMPLES_MAX = 2000  # of one map; of more samples every n-th is drawn
CHANGED_MAX = 100  # samples that are listed, of those that a model gained and lost
CELL_CHARACTERS_MAX = 400
VERDICTS = ("gained", "lost", "kept")

STYLE = """
:root{color-scheme:light dark;--ground:#fff;--ink:#1c1e21;--faint:#6a6f76;--line:#d9dce0;
--c0:#3867b7;--c1:#d9822b;--c2:#5b9a3d;--c3:#9a4fb0;--c4:#1d9a97;--c5:#b5494f;--c6:#8a7a1f;--c7:#5d6673;
--gained:#2c9a4b;--lost:#cf3d3d;--kept:#9aa1aa}
@media(prefers-color-scheme:dark){:root{--ground:#16181b;--ink:#e6e8eb;--faint:#9aa1aa;--line:#33373d;
--c0:#7aa2ea;--c1:#f0a857;--c2:#8fce6f;--c3:#c98adf;--c4:#5fd0cc;--c5:#e98388;--c6:#cdbb55;--c7:#a3adba;
--gained:#55cf78;--lost:#f07171;--kept:#5c636c}}
body{background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;
padding:0 1rem}
h1,h2,h3{line-height:1.2}table{border-collapse:collapse;margin:1rem 0}
th,td{border-bottom:1px solid var(--line);padding:.3rem .7rem;text-align:left;vertical-align:top}
td.figure{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
td.text{white-space:pre-wrap;overflow-wrap:anywhere;max-width:22rem}
small,.faint{color:var(--faint)}code{overflow-wrap:anywhere}
svg{max-width:100%;height:auto}svg text{fill:var(--ink);font:12px system-ui,sans-serif}
svg .spread{stroke:var(--ink);stroke-width:1.5;fill:none}svg.map{border:1px solid var(--line)}
.scroll{overflow-x:auto}.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .3em 0 1em}
circle{fill:var(--kept);fill-opacity:.8}circle.gained,.key.gained{fill:var(--gained);background:var(--gained)}
circle.lost,.key.lost{fill:var(--lost);background:var(--lost)}.key.kept{background:var(--kept)}
.hide-gained:not(:checked)~svg .gained,.hide-lost:not(:checked)~svg .lost,
.hide-kept:not(:checked)~svg .kept{display:none}
""" + "".join(f"svg .model{n}{{fill:var(--c{n})}}.key.model{n}{{background:var(--c{n})}}\n" for n in range(8))


@dataclass(frozen=True)
class SampleMap:
    """Where each sample lies by the model `mapped_by`, in the samples' order; empty without a map."""

    places: Sequence[tuple[float, float]]
    mapped_by: str


def make_report(
    results: dict[str, Any],
    models: Sequence[ModelResult],
    comparisons: dict[str, list[Comparison]],
    drawn: SampleMap,
) -> str:
    """The page."""
    title = "Evaluation of " + ", ".join(model.name for model in models)
    parts = [
        f"<h1>{escape(cut(title, 120))}</h1>",
        _about(results),
        _endpoints(models),
        "<h2>Results</h2>",
        _table(models),
        _chart(models),
    ]
    base = models[0]
    for number, model in enumerate(models[1:], start=1):
        parts += _compared(number, base, model, comparisons[model.name], drawn)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(cut(title, 120))}</title><style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _about(results: dict[str, Any]) -> str:
    settings = results["settings"]
    known = [f"lm-evaluation-harness {results['harness']}", f"computed in {settings['dtype']}"]
    known += [f"seed {settings['seed']}", f"scores rounded to {results['score_decimals']} decimals"]
    if settings["limit"] is not None:
        known.append(f"the first {settings['limit']} samples of each task")
    return f'<p class="faint">{escape("; ".join(known))}.</p>'


def _endpoints(models: Sequence[ModelResult]) -> str:
    """Which answers cannot be had again by computing."""
    names = ", ".join(escape(model.name) for model in models if model.endpoint is not None)
    if not names:
        return ""
    return (
        f"<p><small>Answers of an endpoint: {names}. What it serves may change: asked again, it may answer otherwise. "
        "A text's first token has a score only where the endpoint puts a beginning before it.</small></p>"
    )


def _table(models: Sequence[ModelResult]) -> str:
    heads = "".join(f"<th>{_key(number)}{escape(model.name)}</th>" for number, model in enumerate(models))
    lines = []
    for task, metric in _rows(models):
        cells = []
        for model in models:
            found = model.metrics[task].get(metric)
            cells.append(f'<td class="figure">{figure_text(found.value, found.stderr) if found else ""}</td>')
        direction = "↑" if models[0].metrics[task][metric].is_higher_better else "↓"
        lines.append(f"<tr><td>{escape(task)}</td><td>{escape(metric)} {direction}</td>{''.join(cells)}</tr>")
    digests = "".join(
        "<td>endpoint</td>" if model.endpoint else f"<td><code>{escape(model.digest[:16])}</code></td>"
        for model in models
    )
    lines.append(f'<tr class="faint"><td colspan="2">weights, settings (SHA-256)</td>{digests}</tr>')
    return (
        f'<div class="scroll"><table><tr><th>Task</th><th>Metric</th>{heads}</tr>{"".join(lines)}</table></div>'
        "<p><small>↑ more is better, ↓ less is. ± is one standard error.</small></p>"
    )


def _chart(models: Sequence[ModelResult]) -> str:
    rows = []
    for task, metric in _rows(models):
        found = [(number, model.metrics[task].get(metric)) for number, model in enumerate(models)]
        rows.append((f"{task} {metric}", [Bar(number, each.value, each.stderr) for number, each in found if each]))
    return f'<div class="scroll">{bar_chart(rows)}</div>'


def _compared(
    number: int,
    base: ModelResult,
    model: ModelResult,
    comparisons: Sequence[Comparison],
    drawn: SampleMap,
) -> list[str]:
    """One model against the first: counts, the map, and the samples that changed."""
    lines = []
    verdicts: dict[tuple[str, int], str] = {}
    for each in comparisons:
        of_task = [sample for sample in model.samples if sample.task == each.task]
        verdicts |= {
            (sample.task, sample.number): verdict for sample, verdict in zip(of_task, each.verdicts, strict=True)
        }
        counts = "".join(f'<td class="figure">{each.count(verdict)}</td>' for verdict in ("gained", "lost", "kept"))
        change = f'<td class="figure">{figure_text(each.difference, each.stderr)}</td>'
        lines.append(f"<tr><td>{escape(each.task)}</td><td>{escape(each.metric)}</td>{change}{counts}</tr>")
    heads = "<tr><th>Task</th><th>Samples by</th><th>Difference</th><th>Gained</th><th>Lost</th><th>Kept</th></tr>"
    parts = [
        f"<h2>{escape(model.name)} against {escape(base.name)}</h2>",
        f'<div class="scroll"><table>{heads}{"".join(lines)}</table></div>',
    ]
    if drawn.places:
        parts.append(_map(number, model, verdicts, drawn))
    return [*parts, _changed(base, model, verdicts)]


def _map(
    number: int,
    model: ModelResult,
    verdicts: dict[tuple[str, int], str],
    drawn: SampleMap,
) -> str:
    known = [
        (place, sample, verdicts[sample.task, sample.number])
        for place, sample in zip(drawn.places, model.samples, strict=True)
        if (sample.task, sample.number) in verdicts
    ]
    every = -(-len(known) // MAP_SAMPLES_MAX) if known else 1
    points = [
        Point(*place, verdict, f"{verdict}: {sample.task} {sample.number}: {sample.text}")
        for place, sample, verdict in known[::every]
    ]
    boxes = "".join(
        f'<input type="checkbox" checked class="hide-{verdict}" id="m{number}-{verdict}">'
        f'<label for="m{number}-{verdict}"><span class="key {verdict}"></span>{verdict}</label> '
        for verdict in VERDICTS
    )
    note = f" Every {every}th sample is drawn." if every > 1 else ""
    about = f"near ones look alike to {escape(drawn.mapped_by)} (mean of its last hidden states, two main directions)"
    return (
        f"<h3>Map of the samples</h3><p><small>Each dot is a sample; {about}.{note}</small></p>"
        f"<div>{boxes}<br>{sample_map(points)}</div>"
    )


def _changed(base: ModelResult, model: ModelResult, verdicts: dict[tuple[str, int], str]) -> str:
    parts = []
    for wanted in ("gained", "lost"):
        pairs = [
            (before, after)
            for before, after in zip(base.samples, model.samples, strict=True)
            if verdicts.get((after.task, after.number)) == wanted
        ]
        rows = "".join(_changed_row(before, after) for before, after in pairs[:CHANGED_MAX])
        if rows:
            more = f", the first {CHANGED_MAX}" if len(pairs) > CHANGED_MAX else ""
            heads = (
                f"<tr><th>Sample</th><th>Text</th><th>Expected</th><th>{escape(base.name)}</th>"
                f"<th>{escape(model.name)}</th></tr>"
            )
            parts.append(
                f"<details><summary>{len(pairs)} {wanted}{more}</summary>"
                f'<div class="scroll"><table>{heads}{rows}</table></div></details>'
            )
    return "".join(parts)


def _changed_row(before: Sample, after: Sample) -> str:
    texts = (after.text, after.target, before.answer, after.answer)
    cells = "".join(f'<td class="text">{escape(cut(text, CELL_CHARACTERS_MAX))}</td>' for text in texts)
    return f"<tr><td>{escape(after.task)} {after.number}</td>{cells}</tr>"


def _rows(models: Sequence[ModelResult]) -> list[tuple[str, str]]:
    return [(task, metric) for task, of_task in models[0].metrics.items() for metric in of_task]


def _key(number: int) -> str:
    return f'<span class="key model{number}"></span>'
