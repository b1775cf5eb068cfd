// The list of queries, with filters that are in the URL.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { live } from "../vendor/lit-html/directives/live.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { get } from "./api.js";
import { ago, moment, plural, seconds, visible } from "./format.js";
import { badge } from "./query.js";
import "./clock.js";
import { every } from "./every.js";
import { linkTo, put } from "./router.js";
import { changed, state } from "./store.js";

const STATES = ["running", "waiting", "ok", "partial", "failed", "cancelled", "deadline"];
const EVERY = 3000; // ms
const MOST = 500;

let found = null;
let trouble = "";

const filter = (name) => state.route.query.get(name) ?? "";

function wanted() {
  const query = new URLSearchParams({ limit: MOST });
  for (const name of ["app", "state"]) if (filter(name)) query.set(name, filter(name));
  return query.toString();
}

async function load() {
  const asked = wanted();
  try {
    const { queries } = await get(`v1/queries?${asked}`);
    const now = performance.now();
    for (const one of queries) one.since = now - 1000 * (one.running_s ?? 0);
    if (asked !== wanted()) return; // the filters have changed meanwhile
    found = queries;
    trouble = "";
  } catch (error) {
    trouble = error.status ? error.message : "The server does not answer; it is asked again soon.";
  }
  changed();
}

const refresh = every(EVERY, load);

function set(name, value) {
  put(name, value);
  refresh.now();
}

function draw() {
  const text = filter("text").trim().toLowerCase();
  const shown = found?.filter((one) =>
    one.query_id.includes(text) || (one.question ?? "").toLowerCase().includes(text));
  return html`<div class="head"><div class="row"><h1>Queries</h1>
      <span class="facts">${shown ? plural(shown.length, "query", "queries") : ""}</span></div>
    ${filters()}</div>
    ${trouble ? html`<p class="error" role="alert">${trouble}</p>` : nothing}
    ${shown ? (shown.length ? table(shown) : empty()) : html`<p class="wait" role="status">Asking …</p>`}`;
}

function filters() {
  const select = (name, label, options) => html`<label>${label}
    <select @change=${(event) => set(name, event.target.value)}>
      <option value="">all</option>
      ${options.map((one) => html`<option value=${one} .selected=${one === filter(name)}>${one}</option>`)}
    </select></label>`;
  const names = new Set([...state.apps.map((one) => one.name), filter("app")].filter(Boolean));
  return html`<search class="filters" aria-label="Filters">
    ${select("app", "Application", [...names])} ${select("state", "State", STATES)}
    <label>Question or id contains <input data-first type="search" autocomplete="off" spellcheck="false"
      .value=${live(filter("text"))} @input=${(event) => put("text", event.target.value)}></label>
  </search>`;
}

const table = (rows) => html`<div class="card flush"><table class="queries">
  <thead><tr><th scope="col">State</th><th scope="col" class="wide-only">App</th><th scope="col">Query</th>
    <th scope="col">Asked</th>
    <th scope="col" class="right">Took</th></tr></thead>
  <tbody>${repeat(rows, (one) => one.query_id, row)}</tbody>
</table></div>`;

const row = (one) => html`<tr>
  <td>${badge(one.state)}</td>
  <td class="wide-only">${one.app}</td>
  <td class="about-query">${one.question ? asked(one) : id(one)}
    <small class="wide-only">${one.question ? html`${short(one)} · ` : nothing}${one.mode}</small>
    <small class="narrow-only">${one.app}</small></td>
  <td title=${moment(one.created)}>${ago(one.created)}</td>
  <td class="right digits">${one.state === "running"
    ? html`<running-clock .since=${one.since}></running-clock>`
    : seconds(one.latency_s)}</td>
</tr>`;

const short = (one) => html`<code>${one.query_id.slice(0, 8)}</code>`;

const asked = (one) => html`<a href=${linkTo(one.query_id)} dir="auto"
  title=${visible(one.question)}>${visible(one.question)}</a>`;

// Of a query whose question is not kept.
const id = (one) => html`<a href=${linkTo(one.query_id)}>${short(one)}</a>`;

function empty() {
  const filtered = ["app", "state", "text"].some(filter);
  if (filtered) {
    return html`<div class="card empty"><p>No query is like this.</p>
      <p><a href="#/queries">Show all</a></p></div>`;
  }
  return html`<div class="card empty"><p>No queries yet, or the server was started anew since.</p>
    <p><a class="button" href="#/ask">Ask one</a></p>
    <p>or, from a terminal:</p>
    <pre>curl ${new URL("../v1/apps/", document.baseURI).href}${state.apps[0]?.name ?? "APP"}/queries \\
    -F question="…" -F documents=@file.pdf</pre></div>`;
}

export const queries = {
  draw,
  arrive: refresh.start,
  moved: refresh.now,
  leave: refresh.stop,
};
