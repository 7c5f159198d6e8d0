// The canvas of the plot, by uPlot: bars that stand on each other.
import { millis } from "../lib/words.js";

/** Pixels of height; of a drag from which on it is one and no click. */
const HEIGHT = 92,
  DRAG = 4;

/** A style sheet of uPlot, loaded once. */
function dress() {
  if (document.querySelector("link[data-uplot]")) return;
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = new URL("../vendor/uplot/uPlot.min.css", import.meta.url).href;
  link.dataset.uplot = "";
  document.head.append(link);
}

function clock(seconds, step) {
  const at = new Date(seconds * 1000);
  if (step >= 86_400) return at.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  if (step >= 60) return at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const digits = step >= 1 ? undefined : step >= 0.1 ? 1 : 3;
  return at.toLocaleTimeString("en-GB", {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    fractionalSecondDigits: digits,
  });
}

/** Times of the buckets' middles, and of each series the sum of it and those below, the highest first. */
function stacked({ from, bucket_seconds: step, series }) {
  const start = millis(from) / 1000;
  const times = series[0][1].map((_, place) => start + (place + 0.5) * step);
  const sums = [];
  for (const [, counts] of series) sums.unshift(counts.map((count, place) => count + (sums[0]?.[place] ?? 0)));
  return [times, ...sums];
}

function axes(colour) {
  const line = { stroke: colour("--muted"), font: "11px system-ui, sans-serif", ticks: { show: false } };
  const times = (_plot, splits, _axis, _space, step) => splits.map((second) => clock(second, step));
  const whole = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6];
  return [
    { ...line, size: 20, gap: 2, space: 96, grid: { show: false }, values: times },
    { ...line, size: 44, gap: 4, grid: { stroke: colour("--line"), width: 1 }, space: 24, incrs: whole },
  ];
}

/** Tell a stretch that was drawn over, or the time of a click. */
function listen(plot, latest) {
  let start = null;
  const time = (pixel) => new Date(Math.round(plot.posToVal(pixel, "x") * 1000)).toISOString();
  plot.over.addEventListener("mousedown", (event) => (start = event.offsetX));
  plot.over.addEventListener("mouseup", () => {
    const { left, width } = plot.select,
      isDrag = width >= DRAG,
      at = start;
    start = null;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (isDrag) latest.current.onSelect(time(left), time(left + width));
    else if (at !== null) latest.current.onJump(time(at));
  });
}

/** Draw a histogram into an element, until the signal. latest: a ref to {onSelect(from, to), onJump(time)}. */
export async function chart(element, found, width, latest, signal) {
  dress();
  const { default: UPlot } = await import("../vendor/uplot/uPlot.esm.js");
  if (signal.aborted) return;
  const style = getComputedStyle(element),
    colour = (name) => style.getPropertyValue(name).trim();
  const bars = UPlot.paths.bars({ size: [0.85, 100], align: 0 });
  const layers = found.series.map((_, place) => ({
    fill: colour(`--plot-${place}`),
    stroke: "transparent",
    width: 0,
    paths: bars,
    points: { show: false },
  }));
  const options = {
    width,
    height: HEIGHT,
    padding: [6, null, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
    scales: {
      x: { time: true, range: () => [millis(found.from) / 1000, millis(found.to) / 1000] },
      y: { range: (_plot, _low, high) => [0, Math.max(1, high)] },
    },
    axes: axes(colour),
    series: [{}, ...layers.reverse()],
  };
  const plot = new UPlot(options, stacked(found), (made, begin) => {
    element.replaceChildren(made.root);
    begin();
  });
  listen(plot, latest);
  signal.addEventListener("abort", () => plot.destroy());
}
