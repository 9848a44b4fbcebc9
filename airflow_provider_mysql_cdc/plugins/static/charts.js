// Plots of the last day: how far the pipeline was behind, and events a second.

import { h, duration, number, table } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDEST = 900;
const TWO_COLUMNS = 1280;
const HEIGHT = 150;
const LEFT = 88;
const BOTTOM = 18;
const DAY = 86400000;

function s(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const SPANS = [3600000, 6 * 3600000, DAY];

// The width of a plot: of the page, or of half of it where two have room beside each other.
function plotWidth() {
  const room = document.getElementById("content").clientWidth - 40;
  return room > TWO_COLUMNS ? Math.floor(room / 2) - 12 : Math.max(280, Math.min(WIDEST, room));
}

function axes(title, now, most, label, span) {
  const width = plotWidth();
  const x = (at) => LEFT + ((width - LEFT) * (at - (now - span))) / span;
  const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - 8) * value) / most;
  const svg = s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, role: "img", "aria-label": title });
  for (const share of [0, 0.5, 1]) {
    svg.append(s("line", { class: "grid", x1: LEFT, x2: width, y1: y(most * share), y2: y(most * share) }));
    svg.append(s("text", { x: LEFT - 6, y: y(most * share) + 4, "text-anchor": "end" }, label(most * share)));
  }
  for (let quarter = 4; quarter >= 0; quarter -= width < 480 ? 2 : 1) {
    const back = (span * quarter) / 4;
    const anchor = quarter === 4 ? "start" : quarter ? "middle" : "end";
    svg.append(s("text", { x: x(now - back), y: HEIGHT - 3, "text-anchor": anchor }, quarter ? `${duration(back / 1000)} ago` : "now"));
  }
  return { svg, x, y };
}

// Between two batches the lag is at most the time since the moment up to which everything was in Kafka.
export function bounds(points, now) {
  const line = [];
  points.forEach((point, n) => {
    const next = points[n + 1];
    // Where points between the two were dropped, the next one has the most that there was.
    const high = next ? next.most_ms || next.at_ms - point.until_ms : now - point.until_ms;
    line.push([point.at_ms, point.at_ms - point.until_ms], [next ? next.at_ms : now, high]);
  });
  const from = now - DAY;
  const shown = [];
  for (let n = 0; n + 1 < line.length; n += 2) {
    const [[a, low], [b, high]] = [line[n], line[n + 1]];
    if (b < from) continue;
    shown.push(a < from ? [from, Math.min(high, low + (from - a))] : [a, low], [b, high]);
  }
  return shown;
}

export function rates(points) {
  const bars = [];
  for (let n = 1; n < points.length; n += 1) {
    const [before, after] = [points[n - 1], points[n]];
    const seconds = (after.at_ms - before.at_ms) / 1000;
    if (seconds > 0 && after.events >= before.events) bars.push({ from: before.at_ms, to: after.at_ms, value: (after.events - before.events) / seconds });
  }
  return bars;
}

export function plots(found) {
  const { points, at_ms: now } = found;
  if (!points.length) return h("p", { class: "quiet" }, "No batch has been recorded in the last day.");
  const line = bounds(points, now);
  const dots = points.filter((p) => p.event_lag_ms !== null && p.at_ms >= now - DAY);
  const most = Math.max(1000, ...line.map(([, value]) => value), ...dots.map((p) => p.event_lag_ms));
  // A stream that is an hour old has an hour, and not a dot at the end of a day.
  const span = SPANS.find((length) => points[0].at_ms >= now - length) || DAY;
  const lag = axes("Lag in the last day", now, most, (value) => duration(Math.round(value / 1000)), span);
  const path = line.map(([at, value], n) => `${n ? "L" : "M"}${lag.x(at).toFixed(1)} ${lag.y(value).toFixed(1)}`).join("");
  if (line.length) {
    lag.svg.append(s("path", { class: "area", d: `${path}L${lag.x(line[line.length - 1][0])} ${lag.y(0)}L${lag.x(line[0][0])} ${lag.y(0)}Z` }));
    lag.svg.append(s("path", { class: "line", d: path }));
  }
  for (const p of dots) lag.svg.append(s("circle", { class: "dot", cx: lag.x(p.at_ms), cy: lag.y(p.event_lag_ms), r: 2.5 }));
  const bars = rates(points).filter((bar) => bar.to >= now - DAY);
  const top = Math.max(1, ...bars.map((bar) => bar.value));
  const speed = axes("Events a second in the last day", now, top, (value) => number(Math.round(value * 10) / 10), span);
  for (const bar of bars) {
    const x1 = Math.max(LEFT, speed.x(bar.from));
    speed.svg.append(s("rect", { class: "area", x: x1, width: Math.max(1, speed.x(bar.to) - x1), y: speed.y(bar.value), height: Math.max(0, speed.y(0) - speed.y(bar.value)) }));
  }
  const rows = [...points].reverse().slice(0, 50).map((p) => [new Date(p.at_ms).toISOString().replace("T", " ").slice(0, 19), duration(Math.max(0, Math.round((p.at_ms - p.until_ms) / 1000))), p.event_lag_ms === null ? "\u2013" : duration(p.event_lag_ms / 1000), number(p.events)]);
  return h("div", {},
    h("div", { class: "plots" },
      h("div", {}, h("p", { class: "quiet" }, "Lag, at most (line), and the age of a batch's last event when it was written (dots)"), lag.svg),
      h("div", {}, h("p", { class: "quiet" }, "Events a second"), speed.svg)),
    h("details", {}, h("summary", {}, "As a table"), table("Newest batches, and runs that found nothing to do", [["At (UTC)", ""], ["Lag, at most", "number"], ["Last event", "number"], ["Events of the stream", "number"]], rows)));
}
