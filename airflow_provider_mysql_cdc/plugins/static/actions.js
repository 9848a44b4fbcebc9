// Buttons. Each calls Airflow's REST API with the user's own session; nothing here has rights of its own.

import { h, airflowLink } from "./dom.js";

const TITLES = { adhoc_snapshot: "Ad-hoc snapshot…", verify: "Verify…", snapshot: "Snapshot…", drain: "Drain now…" };
const TEXTS = {
  adhoc_snapshot: "Reads tables again while the stream continues; each row becomes a read event.",
  verify: "Compares the captured tables with their topics, and changes nothing.",
  snapshot: "Takes the first snapshot of the captured tables; with an offset stored already it does nothing.",
  drain: "Writes what is new in the binlog into Kafka.",
};

export function buttons(page, conn, actions, reload) {
  const made = actions.trigger.filter((t) => t.kind !== "signal").map((t) => h("button", { "data-kind": t.kind, onclick: () => ask(page, t, reload) }, TITLES[t.kind]));
  for (const { dag_id, paused } of actions.pause) {
    const act = () => page.airflow("PATCH", `dags/${encodeURIComponent(dag_id)}?update_mask=is_paused`, { is_paused: !paused });
    made.push(h("button", { "data-kind": paused ? "resume" : "pause", title: dag_id, onclick: () => run(page, act, `${dag_id} is ${paused ? "resumed" : "paused"}.`, reload) }, paused ? "Resume" : "Pause"));
  }
  for (const { dag_id, run_id } of actions.end) {
    const act = () => page.airflow("PATCH", `dags/${encodeURIComponent(dag_id)}/dagRuns/${encodeURIComponent(run_id)}?update_mask=state`, { state: "failed" });
    const text = "Ends the driver. What is committed stays; the next run continues there.";
    made.push(h("button", { class: "danger", "data-kind": "stop", title: run_id, onclick: () => dialog(`Stop ${dag_id}`, text, [], "Stop the run", () => run(page, act, `${run_id} is being stopped.`, reload)) }, `Stop ${dag_id}`));
  }
  return h("div", { class: "bar", id: "actions" }, made);
}

const SIGNALS = {
  "pause-snapshot": ["Pause reading", "Reads no further rows of any table, until it is resumed. Changes of the stream go on."],
  "resume-snapshot": ["Resume reading", "Continues where the reading was paused."],
  "stop-snapshot": ["Stop reading", "Ends these snapshots. Rows that were read stay in their topics."],
};

// A button that sends a signal to ad-hoc snapshots, as a run of the DAG that sends signals; null without one.
export function signalButton(page, actions, signal, entry, reload) {
  const by = actions.trigger.find((t) => t.kind === "signal");
  if (!by) return null;
  const [title, text] = SIGNALS[signal];
  const conf = { ...by.conf, signal, ...(entry ? { tables: [entry] } : {}) };
  const send = () => run(page, () => page.airflow("POST", `dags/${encodeURIComponent(by.dag_id)}/dagRuns`, { logical_date: null, conf }), `${by.dag_id} was triggered; the next batch of the stream carries the signal out.`, reload);
  const ask = () => dialog(entry ? `${title}: ${entry}` : title, text, [], `Trigger ${by.dag_id}`, send);
  return h("button", { id: `${signal}:${entry}`, class: signal === "stop-snapshot" ? "danger" : null, "data-signal": signal, onclick: ask }, entry ? "Stop" : title);
}

// A button that reads one table; null for a user who may not start its DAG.
export function readButton(page, actions, entry, reload) {
  const by = actions.trigger.find((t) => t.kind === "adhoc_snapshot");
  return by ? h("button", { "data-read": entry, onclick: () => ask(page, by, reload, entry) }, "Read…") : null;
}

async function run(page, act, text, reload) {
  try {
    await act();
    page.say(text);
    await reload();
    return true;
  } catch (error) {
    page.say(error.message, true);
    return false;
  }
}

function ask(page, trigger, reload, value = "") {
  const fields = [];
  let tables = null;
  if (trigger.field === "tables") {
    tables = h("textarea", { id: "tables-field", required: true, placeholder: "shop.orders", spellcheck: "false" });
    tables.value = value;
    fields.push(h("label", { for: "tables-field" }, "Tables, one database.table or regular expression a line"), tables);
  }
  const start = async () => {
    const conf = { ...trigger.conf };
    if (tables) conf.tables = tables.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (tables && !conf.tables.length) { tables.focus(); return false; }
    return run(page, () => page.airflow("POST", `dags/${encodeURIComponent(trigger.dag_id)}/dagRuns`, { logical_date: null, conf }), `${trigger.dag_id} was triggered.`, reload);
  };
  fields.push(h("p", { class: "quiet" }, "Further settings are in ", airflowLink(`dags/${encodeURIComponent(trigger.dag_id)}`, "the DAG's own form"), "."));
  dialog(TITLES[trigger.kind].replace("…", ""), TEXTS[trigger.kind], fields, `Trigger ${trigger.dag_id}`, start);
}

function dialog(title, text, fields, confirm, act) {
  const box = document.getElementById("dialog");
  const go = h("button", { id: "confirm" }, confirm);
  go.addEventListener("click", async () => {
    go.disabled = true;
    if (await act() !== false) box.close(); else go.disabled = false;
  });
  box.replaceChildren(h("h2", { id: "dialog-title" }, title), h("p", {}, text), ...fields, h("div", { class: "bar" }, h("button", { onclick: () => box.close() }, "Cancel"), go));
  box.showModal();
}
