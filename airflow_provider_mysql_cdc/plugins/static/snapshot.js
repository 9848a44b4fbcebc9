// The chunk map of a running snapshot: a row of cells for each table, in the order of the keys.

import { h, duration, number } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const CELL = 10;

export async function showSnapshot(page, path, area, reading) {
  const batch = reading.status?.batch;
  if (!batch || batch.kind !== "snapshot" || batch.complete) return area.replaceChildren();
  const found = (await page.get(path("/snapshot"))).reading;
  if (!found || !found.tables?.length) return;
  const done = found.tables.reduce((sum, t) => sum + t.done, 0);
  const all = found.tables.reduce((sum, t) => sum + t.chunks, 0);
  area.replaceChildren(h("h2", {}, "Snapshot"),
    h("p", {}, `${number(done)} of ${number(all)} chunks are read`, found.total > found.tables.length ? ` of the first ${found.tables.length} of ${number(found.total)} tables` : "", found.seconds_left !== null ? `; about ${duration(Math.max(1, found.seconds_left))} left at this pace` : "", "."),
    h("div", { class: "scroll" }, h("table", { id: "chunk-map" }, h("tbody", {}, found.tables.map(row)))));
}

function row(t) {
  const map = document.createElementNS(SVG, "svg");
  map.setAttribute("width", t.cells.length * CELL);
  map.setAttribute("height", CELL);
  map.setAttribute("role", "img");
  map.setAttribute("aria-label", `${t.done} of ${t.chunks} chunks`);
  t.cells.forEach((share, n) => {
    const cell = document.createElementNS(SVG, "rect");
    const put = { x: n * CELL + 0.5, y: 0.5, width: CELL - 2, height: CELL - 2, class: `cell ${share === 1 ? "done" : share > 0 ? "part" : ""}` };
    for (const [name, value] of Object.entries(put)) cell.setAttribute(name, value);
    map.append(cell);
  });
  return h("tr", {}, h("th", { scope: "row" }, t.table), h("td", {}, map), h("td", { class: "number" }, `${number(t.done)} / ${number(t.chunks)}`), h("td", { class: "number" }, `${number(t.rows)} rows`));
}
