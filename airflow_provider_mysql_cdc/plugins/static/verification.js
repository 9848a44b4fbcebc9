// The last verification: the verdict about each table, what differs, and what to do next.

import { h, ago, chip, message, number, table } from "./dom.js";

const counted = (counts) => Object.entries(counts).map(([kind, count]) => `${kind} ${number(count)}`).join(", ") || "–";

// Returns when it ended. It is drawn again only where something is new, so that what a person has opened stays open.
export function verificationSection(page, path, area) {
  let drawn = "";
  return async () => {
    const found = (await page.get(path("/verification"))).reading;
    const state = JSON.stringify(found);
    if (state !== drawn) {
      drawn = state;
      area.replaceChildren(...(found && found.verdict ? report(found) : []));
    }
    return found?.ended_ms;
  };
}

function report(found) {
  const asked = found.request;
  const facts = [
    `Compared at ${found.position}`,
    asked.sample_percent < 100 ? `${asked.sample_percent} % of the keys` : "all keys",
    asked.history ? "with the history of each key" : "",
    `repair: ${asked.repair}`,
    found.run ? `run ${found.run}` : "",
  ];
  const tables = Object.entries(found.tables);
  const rows = tables.map(([name, t]) => [
    [name, found.earlier[name] ? h("div", { class: "quiet" }, "by an earlier run, ", ago(found.earlier[name])) : null],
    chip(t.verdict), number(t.rows), number(t.records), counted(t.findings), counted(t.repaired)]);
  const more = found.tables_omitted ? `, and ${number(found.tables_omitted)} more` : "";
  return [
    h("h2", {}, "Last verification"),
    h("p", {}, chip(found.verdict), ` ${found.sentence} Ended `, ago(found.ended_ms), "."),
    h("p", { class: "quiet" }, `${facts.filter((fact) => fact).join("; ")}. ${number(found.tables_compared)} tables, ${number(found.rows)} rows and ${number(found.records)} records were compared.`),
    found.remedy ? message({ what: counted(found.findings) === "–" ? found.sentence : `Found: ${counted(found.findings)}`, remedy: found.remedy }, found.verdict === "different" ? "bad" : "warn") : null,
    table(`${number(tables.length)} tables, those with differences first${more}`, [["Table", ""], ["Verdict", ""], ["Rows", "number"], ["Records", "number"], ["Found", ""], ["Repaired", ""]], rows),
    ...tables.map(details),
  ].filter((part) => part);
}

function details([name, t]) {
  const columns = Object.entries(t.columns).sort((a, b) => b[1] - a[1]).map(([column, count]) => `${column} ${number(count)}`);
  const lines = [
    columns.length ? h("p", {}, `Columns that differ: ${columns.join(", ")}`) : null,
    ...(t.unknown || []).map((reason) => h("p", {}, `Not judged: ${reason}`)),
    t.examples && t.examples.length ? h("pre", { class: "scroll" }, t.examples.join("\n")) : null,
  ].filter((line) => line);
  return lines.length ? h("details", { "data-table": name }, h("summary", {}, `${name} in topic ${t.topic}`), lines) : null;
}
