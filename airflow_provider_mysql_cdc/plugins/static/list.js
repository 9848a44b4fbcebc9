// The list of pipelines. It is made from Airflow's database at once; state and lag of those that are seen come later.

import { h, airflowLink, ago, bytes, chip, duration, table } from "./dom.js";

const SIZE = 25;
const AT_A_TIME = 3;

export function showList(page) {
  let offset = 0;
  let readings = new Map();
  let rows = [];
  let asked = 0;
  const search = h("input", { type: "search", id: "search", placeholder: "Filter (press /)", "aria-label": "Filter pipelines by connection", oninput: () => { offset = 0; load(); } });
  const area = h("div", { id: "pipelines" });
  page.content.replaceChildren(h("h1", {}, "Pipelines"), h("div", { class: "bar" }, search), area);

  async function load() {
    const turn = (asked += 1);
    const found = await page.get(`pipelines?offset=${offset}&limit=${SIZE}&search=${encodeURIComponent(search.value)}`);
    if (turn !== asked) return;
    rows = found.pipelines;
    for (const row of rows) if (row.reading && !readings.has(row.conn_id)) readings.set(row.conn_id, row);
    draw(found);
    await readAll();
  }

  async function readAll() {
    const left = [...rows];
    const work = async () => {
      for (let row = left.shift(); row; row = left.shift()) {
        try {
          const found = await page.get(`pipeline/status?conn_id=${encodeURIComponent(row.conn_id)}`);
          if (found.reading) readings.set(row.conn_id, found);
          fill(row);
        } catch (error) { /* said by the next call of the list */ }
      }
    };
    await Promise.all(Array.from({ length: AT_A_TIME }, work));
  }

  function draw(found) {
    if (!found.all) return area.replaceChildren(empty());
    const last = Math.min(found.offset + rows.length, found.total);
    const caption = found.total ? `${found.offset + 1} to ${last} of ${found.total}` : `None of ${found.all} pipelines matches`;
    const columns = [["Connection", ""], ["State", ""], ["Lag", "number"], ["To read", "number"], ["Last run", ""], ["DAGs", ""]];
    const shown = table(caption, columns, rows.map(cells));
    const focused = document.activeElement && document.activeElement.id;
    area.replaceChildren(shown, pager(found));
    if (focused) document.getElementById(focused)?.focus();
    for (const row of rows) fill(row);
  }

  function cells(row) {
    const run = row.last_run;
    const link = h("a", { href: `#/pipelines/${encodeURIComponent(row.conn_id)}`, id: `link-${row.conn_id}`, class: "name", title: row.conn_id }, row.conn_id);
    return [
      link,
      h("span", { id: `state-${row.conn_id}` }),
      h("span", { id: `lag-${row.conn_id}` }),
      h("span", { id: `bytes-${row.conn_id}` }),
      run ? [airflowLink(`dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.run_id)}`, run.dag_id), " ", chip(run.state), " ", ago(run.start)] : "–",
      row.paused ? chip("paused") : `${row.dags.length}`,
    ];
  }

  function fill(row) {
    const known = readings.get(row.conn_id);
    const lag = known?.reading?.status?.lag;
    const put = (name, ...parts) => document.getElementById(`${name}-${row.conn_id}`)?.replaceChildren(...parts);
    put("state", chip(known ? known.reading.state : "reading"));
    put("lag", known ? (lag && lag.milliseconds !== null ? `${lag.upper_bound ? "≤ " : ""}${duration(lag.milliseconds / 1000)}` : "–") : "");
    put("bytes", known ? bytes(lag?.bytes) : "");
  }

  function pager(found) {
    const go = (to) => () => { offset = to; load(); };
    if (found.total <= SIZE) return "";
    return h("div", { class: "bar" },
      h("button", { id: "earlier", disabled: found.offset === 0, onclick: go(Math.max(0, found.offset - SIZE)) }, "Previous"),
      h("button", { id: "later", disabled: found.offset + rows.length >= found.total, onclick: go(found.offset + SIZE) }, "Next"));
  }

  function empty() {
    return h("div", { class: "empty", id: "empty" },
      h("h2", {}, "No pipeline yet"),
      h("p", {}, "A pipeline appears here as soon as a DAG that you may read uses a connection of type MySQL CDC."),
      h("ol", {},
        h("li", {}, "Create a connection of type MySQL CDC under ", airflowLink("connections", "Admin > Connections"), "; its test button checks the server, the account and Kafka."),
        h("li", {}, "Add a DAG file that calls ", h("code", {}, "cdc_pipeline(\"shop\", mysql_cdc_conn_id=...)"), ", or one of the example DAGs."),
        h("li", {}, "Trigger its snapshot; the drain follows on its schedule.")));
  }

  const key = (event) => {
    if (event.key === "/" && document.activeElement !== search && !event.ctrlKey) { event.preventDefault(); search.focus(); }
  };
  document.addEventListener("keydown", key);
  const end = page.every(10, load);
  return () => { end(); asked += 1; document.removeEventListener("keydown", key); };
}
