// The page "MySQL CDC": a list of pipelines, and a page for each. Addresses: #/ and #/pipelines/<connection>.

import { h, airflowLink, followInAirflow } from "./dom.js";
import { showList } from "./list.js";
import { showPipeline } from "./pipeline.js";

const content = document.getElementById("content");
const notice = document.getElementById("notice");
let stop = () => {};

export class Refused extends Error {}

async function call(url, options) {
  let answer;
  try {
    answer = await fetch(url, { credentials: "same-origin", ...options });
  } catch (error) {
    throw new Refused("Airflow's API server does not answer.");
  }
  if (answer.status === 401) throw new Refused("You are not logged in any more. Reload Airflow to log in again.");
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const detail = typeof body.detail === "string" ? body.detail : JSON.stringify(body.detail || body);
    throw new Refused(`${answer.status}: ${detail}`);
  }
  return body;
}

const page = {
  content,
  get: (path) => call(new URL(`api/${path}`, document.baseURI), {}),
  // Airflow's own REST API: it checks the user's rights again. JSON is refused across sites without CORS, and the
  // session's cookie is not sent from other sites (SameSite).
  airflow: (method, path, body) =>
    call(new URL(`../api/v2/${path}`, document.baseURI), {
      method,
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    }),
  say(text, bad = false) {
    if (notice.textContent !== text) notice.textContent = text;
    notice.className = bad ? "bad" : "";
  },
  // Repeats a function while the page is seen; a failure is said, and tried again.
  every(seconds, act) {
    let timer;
    let ended = false;
    const run = async () => {
      clearTimeout(timer);
      let pause = seconds;
      try {
        if (!document.hidden) pause = (await act()) || seconds;
        if (!ended && notice.className === "bad" && !document.hidden) page.say("");
      } catch (error) {
        if (!ended) page.say(error instanceof Refused ? error.message : `The page failed: ${error}`, true);
      }
      if (!ended) timer = setTimeout(run, pause * 1000);
    };
    const look = () => document.hidden || run();
    document.addEventListener("visibilitychange", look);
    run();
    return () => { ended = true; clearTimeout(timer); document.removeEventListener("visibilitychange", look); };
  },
};

function theme() {
  let dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  try {
    const chosen = window.localStorage.getItem("theme");
    if (chosen === "dark" || chosen === "light") dark = chosen === "dark";
    if (window.parent !== window) dark = window.parent.document.documentElement.classList.contains("dark");
  } catch { /* another site's frame: the system's setting stays */ }
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name; // not written by this page
  }
}

function route() {
  stop();
  page.say("");
  const [, kind, name] = location.hash.split("/");
  const conn = kind === "pipelines" && name ? decoded(name) : null;
  document.title = conn ? `${conn} – MySQL CDC` : "MySQL CDC";
  document.getElementById("path").replaceChildren(...(conn ? [h("li", { "aria-current": "page", class: "name", title: conn }, conn)] : []));
  content.replaceChildren(h("p", { class: "quiet" }, "Loading…"));
  stop = conn ? showPipeline(page, conn) : showList(page);
  content.focus({ preventScroll: true });
}

theme();
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);
window.addEventListener("storage", theme);
if (window.parent !== window) {
  new MutationObserver(theme).observe(window.parent.document.documentElement, { attributeFilter: ["class"] });
  document.body.classList.add("framed");
}
document.getElementById("airflow").replaceWith(airflowLink("", "Airflow"));
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); content.focus(); });
window.addEventListener("hashchange", route);
route();
