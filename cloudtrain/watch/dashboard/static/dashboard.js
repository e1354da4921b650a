"use strict";
// The dashboard's own script: plots of metrics, and selected jobs that stay selected when their rows are replaced.

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function options(name, plot, width) {
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule") } };
  const line = { label: name, stroke: colour("--c0"), width: 1.5, spanGaps: false, points: { show: plot.x.length < 60 } };
  const edge = label => ({ label, stroke: colour("--c0"), width: 0, points: { show: false } });
  const spread = plot.low ? { series: [edge("lowest"), edge("highest")], bands: [{ series: [3, 2], fill: colour("--c0") + "30" }] } : { series: [] };
  return {
    width, height: 200, legend: { live: true }, scales: { x: { time: !plot.by_step } }, bands: spread.bands,
    axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map(tick => Number(tick.toPrecision(6)).toString()) }],
    series: [{ label: plot.by_step ? "step" : "time" }, line, ...spread.series],
  };
}

const drawn = new Map();
const counted = plot => plot.count ? `${plot.count.toLocaleString("en")} values` : "";

function draw(name, plot, place) {
  const data = plot.low ? [plot.x, plot.y, plot.low, plot.high] : [plot.x, plot.y];
  const last = drawn.get(name);
  if (last && last.columns === data.length && last.bySteps === plot.by_step) {
    last.plot.setData(data);
    last.count.textContent = counted(plot);
    return;
  }
  const figure = last ? last.figure : place.appendChild(document.createElement("figure"));
  figure.replaceChildren();
  figure.className = "plot";
  const title = figure.appendChild(document.createElement("h3"));
  title.textContent = name;
  const count = figure.appendChild(document.createElement("p"));
  count.className = "dim";
  count.textContent = counted(plot);
  const width = Math.max(figure.clientWidth, 240);
  drawn.set(name, { plot: new uPlot(options(name, plot, width), data, figure), figure, count, columns: data.length, bySteps: plot.by_step });
}

let loading = false, again = false;

async function load() {
  const section = document.getElementById("metrics");
  if (!section) return;
  if (loading) { again = true; return; }
  loading = true;
  try {
    const answer = await fetch(section.dataset.points);
    if (answer.ok) {
      const { is_whole, metrics } = await answer.json();
      section.hidden = Object.keys(metrics).length === 0;
      document.getElementById("partial").hidden = is_whole;
      again ||= !is_whole;
      for (const [name, plot] of Object.entries(metrics)) draw(name, plot, document.getElementById("plots"));
    }
  } finally {
    loading = false;
  }
  if (again) { again = false; setTimeout(load, 1000); }
}

const selected = new Set();

function reselect() {
  for (const box of document.querySelectorAll("#rows input[name=job]")) box.checked = selected.has(box.value);
}

document.addEventListener("change", event => {
  if (event.target.name === "job") selected[event.target.checked ? "add" : "delete"](event.target.value);
});
document.addEventListener("htmx:afterSwap", reselect);

// The output shows its end, unless a person has scrolled up.
let atEnd = true, scrolled = 0;
document.addEventListener("htmx:beforeSwap", event => {
  const lines = event.target.id === "lines" && event.target.querySelector("pre");
  if (lines) { scrolled = lines.scrollTop; atEnd = lines.scrollHeight - scrolled - lines.clientHeight < 8; }
});
document.addEventListener("htmx:afterSwap", event => {
  const lines = event.target.id === "lines" && event.target.querySelector("pre");
  if (lines) lines.scrollTop = atEnd ? lines.scrollHeight : scrolled;
});

// A page that is hidden reads no output: the server ends its reader.
document.addEventListener("htmx:beforeRequest", event => {
  if (document.hidden && event.target.closest("form.filter")) event.preventDefault();
});

// A browser opens six connections to a server: a page that is hidden holds none.
let stream = null;
htmx.createEventSource = url => {
  const opened = stream = new EventSource(url);
  opened.addEventListener("ended", () => { if (stream === opened) stream = null; });
  if (document.hidden) opened.close();
  return opened;
};
document.addEventListener("visibilitychange", () => {
  if (document.hidden) stream?.close();
  else if (stream?.readyState === EventSource.CLOSED) {
    const closed = stream;
    stream = null;
    closed.dispatchEvent(new Event("error"));  // the extension connects again
  }
});

document.addEventListener("htmx:sseMessage", event => { if (event.detail.type === "points") load(); });
document.addEventListener("DOMContentLoaded", load);
window.addEventListener("resize", () => {
  for (const { plot, figure } of drawn.values()) plot.setSize({ width: Math.max(figure.clientWidth, 240), height: 200 });
});
