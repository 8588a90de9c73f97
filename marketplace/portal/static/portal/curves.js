// Draws what a job's program reported, series by series: GET /api/v1/jobs/ID/curve, drawn by uPlot. Each point is the
// mean of its steps; the band around the line is from the lowest to the highest of them, so that no figure is hidden.
"use strict";

const curves = document.getElementById("curves");
const AGAIN_MS = 10_000;
const HEIGHT = 220;
const FIRST = ["loss", "eval_loss", "tokens_per_second", "grad_norm", "learning_rate"];

if (curves) {
  const plots = new Map();
  let again;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const rank = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);

  const columns = (points) => [
    points.map((point) => point.last_step),
    points.map((point) => point.mean),
    points.map((point) => point.highest),
    points.map((point) => point.lowest),
  ];

  const short = (value) =>
    value && (Math.abs(value) < 0.01 || Math.abs(value) >= 1e6) ? value.toExponential(1) : value.toLocaleString();

  const newest = (plot) => setTimeout(() => plot.setLegend({ idx: plot.data[0].length - 1 }, false));

  const options = (name, width) => {
    const line = colour("--clay");
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    return {
      title: name.replaceAll("_", " "),
      width,
      height: HEIGHT,
      scales: { x: { time: false } },
      axes: [{ ...axis }, { ...axis, size: 64, values: (_, values) => values.map(short) }],
      series: [
        { label: "step" },
        { label: name, stroke: line, width: 1.5 },
        { label: "highest", stroke: "transparent", points: { show: false } },
        { label: "lowest", stroke: "transparent", points: { show: false } },
      ],
      // The newest figures, until somebody points at others.
      hooks: { ready: [newest], setData: [newest], setCursor: [(plot) => plot.cursor.idx ?? newest(plot)] },
      bands: [{ series: [2, 3], fill: `color-mix(in srgb, ${line} 18%, transparent)` }],
    };
  };

  const show = ({ series }) => {
    const sorted = series.filter((each) => each.points.length).sort((a, b) => rank(a.name) - rank(b.name));
    curves.hidden = !sorted.length;
    for (const { name, points } of sorted) {
      const known = plots.get(name);
      if (known) {
        known.setData(columns(points));
        continue;
      }
      const figure = document.createElement("figure");
      figure.setAttribute("aria-label", `${name} by step; newest ${points.at(-1).newest}`);
      curves.append(figure);
      plots.set(name, new uPlot(options(name, figure.clientWidth), columns(points), figure));
    }
  };

  const load = async () => {
    const headers = { "Souk-Organisation": curves.dataset.organisation };
    const answer = await fetch(curves.dataset.curve, { headers }).catch(() => null);
    if (answer?.ok) show(await answer.json());
    clearTimeout(again);
    if (document.getElementById("now")?.hasAttribute("hx-get")) again = setTimeout(load, AGAIN_MS);
  };

  const redraw = () => {
    for (const plot of plots.values()) plot.destroy();
    plots.clear();
    for (const figure of curves.querySelectorAll("figure")) figure.remove();
    load();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("resize", () => {
    for (const plot of plots.values()) plot.setSize({ width: plot.root.parentElement.clientWidth, height: HEIGHT });
  });
  load();
}
