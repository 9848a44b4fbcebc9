// The page of one pipeline.

import { h, airflowLink, ago, bytes, chip, duration, message, number, table } from "./dom.js";
import { buttons, readButton, signalButton } from "./actions.js";
import { plots } from "./charts.js";
import { showSnapshot } from "./snapshot.js";
import { tablesSection } from "./tables.js";
import { verificationSection } from "./verification.js";

const SYSTEMS = { kafka: "Kafka", mysql: "The source", "offset store": "The offset store", ledger: "The ledger", configuration: "The configuration", page: "The pipeline" };

export function showPipeline(page, conn) {
  const path = (part = "") => `pipeline${part}?conn_id=${encodeURIComponent(conn)}`;
  const parts = Object.fromEntries(["top", "unread", "facts", "errors", "snapshot", "history", "checks", "neverRead", "scans", "runs", "verification", "past"].map((name) => [name, h("section", { id: name })]));
  const tables = tablesSection(page, path);
  const verification = verificationSection(page, path, parts.verification);
  page.content.replaceChildren(h("h1", {}, conn), parts.top, parts.unread, parts.facts, parts.errors, parts.snapshot, parts.history, parts.checks, parts.neverRead, parts.scans, tables.element, parts.runs, parts.verification, parts.past);
  parts.checks.replaceChildren(h("h2", {}, "Checks"), h("p", { class: "quiet" }, "Asks the source, Kafka and the schema registry what a run would find."), h("button", { id: "check", disabled: true, onclick: check }, "Check now"), h("div", { id: "findings" }));
  let shownActions = "";
  let listed = "";
  let plotted = "";
  let checking = false;

  async function load() {
    const found = await page.get(path());
    const reading = found.reading;
    const state = JSON.stringify(found.actions) + (reading ? reading.state : "");
    if (state !== shownActions) {
      shownActions = state;
      parts.top.replaceChildren(h("div", { class: "bar" }, chip(reading ? reading.state : "reading"), reading?.stream ? h("span", { class: "quiet" }, `topic.prefix ${reading.stream}, source ${reading.source}`) : ""), buttons(page, conn, found.actions, load));
    }
    allowCheck(found.actions.check);
    runs(parts.runs, found);
    if (!reading) return 0.5;
    unread(parts.unread, reading);
    facts(parts.facts, reading, found.age_s);
    errors(parts.errors, parts.past, reading);
    neverRead(page, parts.neverRead, reading, found.actions, load);
    scans(page, parts.scans, reading, found.actions, load);
    await history();
    const tablesOf = JSON.stringify([reading.status?.batch, await verification()]);
    if (listed !== tablesOf) { listed = tablesOf; await tables.load(); }
    await showSnapshot(page, path, parts.snapshot, reading);
    return found.running ? 1 : 5;
  }

  async function history() {
    const found = await page.get(path("/history"));
    const state = `${found.points.length} ${found.points.at(-1)?.at_ms} ${Math.floor(found.at_ms / 60000)} ${window.innerWidth}`;
    if (state === plotted) return;
    plotted = state;
    parts.history.replaceChildren(h("h2", {}, "The last day"), plots(found));
  }

  function allowCheck(allowed) {
    const button = document.getElementById("check");
    if (checking) return;
    button.disabled = !allowed;
    button.title = allowed ? "" : "Only who may read the connections may have them checked.";
  }

  async function check() {
    checking = true;
    const button = document.getElementById("check");
    const area = document.getElementById("findings");
    button.disabled = true;
    try {
      let found = await page.get(path("/preflight"));
      while (!found.reading) {
        area.replaceChildren(h("p", { class: "quiet" }, "Checking…"));
        await new Promise((done) => setTimeout(done, 500));
        found = await page.get(path("/preflight"));
      }
      const errors = Object.values(found.reading.unread).map((error) => message(error));
      const rows = (found.reading.findings || []).map((f) => [chip(f.level), f.system, h("div", {}, f.what, h("div", { class: "quiet" }, f.why)), f.fix]);
      const reached = Object.entries(found.reading.reached || {}).filter(([, text]) => text).map(([system, text]) => h("p", { class: "quiet" }, `${system}: ${text}`));
      area.replaceChildren(...errors, ...reached, rows.length ? table("Findings", [["Level", ""], ["System", ""], ["What was found", ""], ["What to do", ""]], rows) : h("p", {}, errors.length ? "" : "Nothing was found."));
    } catch (error) {
      page.say(error.message, true);
    }
    checking = false;
    button.disabled = false;
  }

  const end = page.every(5, load);
  return () => { end(); tables.end(); };
}

function unread(area, reading) {
  const found = Object.entries(reading.unread || {}).map(([system, error]) => h("div", { "data-unread": system }, h("p", {}, `${SYSTEMS[system] || system} could not be read:`), message(error)));
  area.replaceChildren(...found);
}

function fact(name, value, note) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value, note ? h("small", {}, note) : null));
}

function facts(area, reading, age) {
  const status = reading.status;
  const stored = reading.stored;
  const shown = [];
  if (status) {
    const lag = status.lag;
    const streaming = status.metrics.streaming || {};
    const known = lag.milliseconds !== null;
    shown.push(fact("Lag", known ? `${lag.upper_bound ? "at most " : ""}${duration(lag.milliseconds / 1000)}` : "unknown", known ? "age of the first change that is not in Kafka" : lag.why));
    shown.push(fact("Binlog to read", bytes(lag.bytes), "of all tables"));
    shown.push(fact("Offset in Kafka", lag.position || "–"));
    shown.push(fact("Events", number(streaming.TotalNumberOfEventsSeen), rate(reading)));
    const batch = status.batch;
    if (batch.epoch) shown.push(fact("Last batch", `${batch.kind} ${batch.epoch}`, batch.complete ? "complete" : "not complete"));
    if (batch.ended_ms) shown.push(fact("Ended", ago(batch.ended_ms), batch.ok ? "without an error" : "with an error"));
    if (status.active && status.progress_ms) shown.push(fact("Reported", ago(status.progress_ms), "by the run at work"));
  }
  if (stored) shown.push(fact("Offset in Airflow", stored.offset ? `${stored.offset.file}:${stored.offset.pos}` : "–", stored.pending ? `batch ${stored.pending.epoch} is planned` : `after batch ${stored.epoch}`));
  if (reading.stored_lag) shown.push(fact("Lag of the offset in Airflow", bytes(reading.stored_lag.bytes), reading.stored_lag.reason));
  area.replaceChildren(h("dl", { class: "facts" }, shown), h("p", { class: "quiet" }, `Read ${duration(Math.round(age))} ago.`));
}

const seen = new Map();

// Events a second: from two readings of this page, because the counts are of the whole stream.
function rate(reading) {
  const count = reading.status.metrics.streaming?.TotalNumberOfEventsSeen;
  if (count === undefined) return "";
  const at = reading.status.at_ms;
  const kept = (seen.get(reading.stream) || []).filter((entry) => at - entry.at < 60000 && entry.at < at);
  kept.push({ at, count });
  seen.set(reading.stream, kept);
  const oldest = kept[0];
  return oldest.at === at ? "since the stream began" : `${number(Math.round((count - oldest.count) / ((at - oldest.at) / 1000)))} a second`;
}

// An error is overcome when a batch has ended well since.
function errors(area, past, reading) {
  const batch = reading.status?.batch || {};
  const overcome = (error) => batch.ok && batch.ended_ms > error.ts_ms;
  const found = (reading.report?.errors || []).slice(0, 10);
  const show = (error) => h("div", {}, h("p", { class: "quiet" }, ago(error.ts_ms), ` ${error.type}`, error.owner ? [" · ", owner(error.owner)] : []), message(error, overcome(error) ? "past" : "bad"));
  const put = (part, title, some) => part.replaceChildren(...(some.length ? [h("h2", {}, title), ...some.map(show)] : []));
  put(area, "Last errors", found.filter((error) => !overcome(error)));
  put(past, "Errors that were overcome", found.filter(overcome));
}

function owner(text) {
  const [dag, run, task] = text.split("/");
  return task ? airflowLink(`dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run)}/tasks/${encodeURIComponent(task)}`, `${dag} / ${task}`) : text;
}

function neverRead(page, area, reading, actions, reload) {
  const found = reading.report?.never_read || [];
  const rows = found.map((t) => [t.table, t.where, t.why, readButton(page, actions, t.entry, reload)]);
  area.replaceChildren(...(rows.length ? [h("h2", {}, "Captured and never read"), h("p", { class: "quiet" }, "Earlier rows of these tables are in no record. An ad-hoc snapshot reads them; if they are not wanted: mysql-cdc unread --dismiss."), table("Tables", [["Table", ""], ["Changes since", ""], ["Why", ""], ["", ""]], rows)] : []));
}

function scans(page, area, reading, actions, reload) {
  const report = reading.report;
  if (!report || !(report.scans.length || report.signals.length || report.requests.length)) return area.replaceChildren();
  const active = (s) => s.state === "running" || s.state === "waiting";
  const button = (signal, entry = "") => signalButton(page, actions, signal, entry, reload);
  const rows = report.scans.map((s) => [s.table, chip(report.scans_paused && s.state === "running" ? "paused" : s.state), [number(s.rows), s.estimate ? ` of about ${number(s.estimate)}` : ""], left(s.seconds_left), s.kind, s.started_ms ? ago(s.started_ms) : "–", s.reason, active(s) && s.kind === "incremental" ? button("stop-snapshot", s.entry) : ""]);
  const signals = report.signals.map((s) => [s.id, s.type, s.channel, s.sent_ms ? ago(s.sent_ms) : "–"]);
  const requests = report.requests.map((r) => [r.id, r.verdict, number(r.tables), ago(r.ts_ms), r.reason]);
  const focused = document.activeElement?.id;
  const rest = left(report.scans_seconds_left, "");
  area.replaceChildren(h("h2", {}, "Ad-hoc snapshots and signals"),
    report.scans_active ? h("div", { class: "bar", id: "scan-actions" }, button(report.scans_paused ? "resume-snapshot" : "pause-snapshot"), button("stop-snapshot")) : "",
    signals.length ? table(`${signals.length} signals wait for the next drain`, [["Signal", ""], ["Type", ""], ["Channel", ""], ["Sent", ""]], signals) : "",
    rows.length ? table(`${report.scans_active} of these tables are being read${rest ? `, ${rest} left at this pace` : ""}`, [["Table", ""], ["State", ""], ["Rows", "number"], ["Left", "number"], ["Kind", ""], ["Began", ""], ["Reason", ""], ["", ""]], rows) : "",
    requests.length ? table("Requests", [["Signal", ""], ["Verdict", ""], ["Tables", "number"], ["Decided", ""], ["Reason", ""]], requests) : "");
  if (focused) document.getElementById(focused)?.focus();
}

function left(seconds, unknown = "–") {
  return seconds === null || seconds === undefined ? unknown : `about ${duration(Math.max(1, Math.round(seconds)))}`;
}

function runs(area, found) {
  const dags = found.dags.map((d) => [airflowLink(`dags/${encodeURIComponent(d.dag_id)}`, d.dag_id), d.kind.replaceAll("_", " "), d.schedule && d.schedule !== "None" ? d.schedule : "–", d.paused ? chip("paused") : "on", d.next_run && !d.paused ? d.next_run.replace("T", " ").slice(0, 16) : "–"]);
  const rows = found.runs.map((r) => [airflowLink(`dags/${encodeURIComponent(r.dag_id)}/runs/${encodeURIComponent(r.run_id)}`, r.run_id), r.dag_id, chip(r.state), r.start ? ago(r.start) : "–", r.start && r.end ? duration((Date.parse(r.end) - Date.parse(r.start)) / 1000) : "–"]);
  area.replaceChildren(h("h2", {}, "DAGs and runs"),
    table("DAGs of this pipeline that you may read", [["DAG", ""], ["Does", ""], ["Schedule", ""], ["State", ""], ["Next run (UTC)", ""]], dags),
    rows.length ? table("Newest runs", [["Run", ""], ["DAG", ""], ["State", ""], ["Began", ""], ["Took", ""]], rows) : h("p", { class: "quiet" }, "No runs yet."));
}
