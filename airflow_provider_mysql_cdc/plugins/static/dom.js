// Make elements, and show values. Texts become text nodes: nothing that a server says is read as HTML.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Airflow shows the page in a frame that may not navigate it, so a link is followed by a link of Airflow's document.
export function airflowLink(path, text, attributes = {}) {
  const url = new URL(`../${path}`, document.baseURI).href;
  return h("a", { href: url, onclick: (event) => followInAirflow(event, url), ...attributes }, text);
}

export function followInAirflow(event, url) {
  if (window.parent === window || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const link = window.parent.document.createElement("a");
  link.href = url;
  link.hidden = true;
  window.parent.document.body.append(link);
  link.click();
  link.remove();
}

const STATES = {
  "up to date": ["good", "✓"], behind: ["warn", "▲"], draining: ["work", "▶"], snapshot: ["work", "▶"],
  "no progress": ["bad", "!"], failed: ["bad", "✕"], interrupted: ["warn", "!"], "not started": ["idle", "○"],
  "lag unknown": ["warn", "?"], unknown: ["warn", "?"], reading: ["idle", "…"],
  success: ["good", "✓"], running: ["work", "▶"], queued: ["idle", "…"],
  done: ["good", "✓"], aborted: ["bad", "✕"], waiting: ["idle", "…"], equal: ["good", "✓"], different: ["bad", "✕"],
  "not judged": ["warn", "?"], error: ["bad", "✕"], warning: ["warn", "!"], paused: ["warn", "‖"],
};

export function chip(state) {
  const [kind, sign] = Object.hasOwn(STATES, state) ? STATES[state] : ["idle", "○"];
  return h("span", { class: `chip ${kind}`, "data-state": state }, h("span", { "aria-hidden": "true" }, `${sign} `), state);
}

export function number(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en-US");
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  let size = value;
  while (size >= 1000 && unit < units.length - 1) { size /= 1000; unit += 1; }
  return `${unit ? size.toFixed(1) : size} ${units[unit]}`;
}

const LENGTHS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return seconds === 0 ? "0 s" : "under 1 s";
  const place = LENGTHS.findIndex(([length]) => seconds >= length);
  const [length, unit] = LENGTHS[place];
  const whole = Math.floor(seconds / length);
  const next = LENGTHS[place + 1];
  const rest = next ? Math.floor((seconds - whole * length) / next[0]) : 0;
  return rest ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
}

export function ago(at) {
  if (!at) return "never";
  const time = typeof at === "number" ? at : Date.parse(at);
  const text = new Date(time).toISOString().replace("T", " ").slice(0, 19);
  return h("time", { datetime: new Date(time).toISOString(), title: `${text} UTC` }, `${duration(Math.max(0, (Date.now() - time) / 1000))} ago`);
}

export function table(caption, columns, rows) {
  const head = columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name));
  const body = rows.map((cells) => h("tr", {}, cells.map((cell, n) => h(n ? "td" : "th", { class: columns[n][1], scope: n ? null : "row", "data-label": columns[n][0] }, cell))));
  return h("div", { class: "scroll" }, h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export function message(found, kind = "bad") {
  return h("div", { class: `message ${kind}` },
    h("strong", {}, found.what, found.where ? ` [${found.where}]` : ""),
    found.why ? h("div", {}, `Why: ${found.why}`) : null,
    found.remedy || found.fix ? h("div", {}, `What to do: ${found.remedy || found.fix}`) : null);
}
