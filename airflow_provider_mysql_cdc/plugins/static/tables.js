// The tables of a pipeline, some at a time.

import { h, ago, chip, number, table } from "./dom.js";

const SIZE = 100;

export function tablesSection(page, path) {
  let offset = 0;
  let asked = 0;
  const area = h("div", {});
  const search = h("input", { type: "search", placeholder: "Filter tables", "aria-label": "Filter tables", oninput: () => { offset = 0; load(); } });
  const element = h("section", { id: "tables" }, h("h2", {}, "Tables"), h("div", { class: "bar" }, search), area);

  let later;

  async function load() {
    clearTimeout(later);
    const turn = (asked += 1);
    const found = await page.get(`${path("/tables")}&offset=${offset}&limit=${SIZE}&search=${encodeURIComponent(search.value)}`);
    if (turn !== asked) return;
    const rows = found.tables.map((t) => [h("span", { class: "name", title: t.name }, t.name), number(t.records), number(t.records_day), t.last_change ? ago(t.last_change) : "–", t.structure ? [`record ${number(t.structure.record)}, `, ago(t.structure.at_ms)] : "–", t.verdict ? chip(t.verdict) : "–"]);
    const last = offset + rows.length;
    const go = (to) => () => { offset = to; load(); };
    area.replaceChildren(
      rows.length ? table(`${offset + 1} to ${last} of ${found.total}`, [["Table", ""], ["Records, last run", "number"], ["Records, last day", "number"], ["Last change", ""], ["Structure", ""], ["Verified", ""]], rows) : h("p", { class: "quiet" }, "No table has been written yet."),
      found.total > SIZE ? h("div", { class: "bar" }, h("button", { disabled: !offset, onclick: go(Math.max(0, offset - SIZE)) }, "Previous"), h("button", { disabled: last >= found.total, onclick: go(offset + SIZE) }, "Next")) : "");
    if (found.running) later = setTimeout(() => load().catch(() => {}), 1000);
  }

  return { element, load, end: () => { asked += 1; clearTimeout(later); } };
}
