// Ask: choose an application, fill in what it needs, send.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { get, queryPath } from "./api.js";
import { drop } from "./documents.js";
import { begin } from "./live.js";
import { blank, body, fill, PASSES } from "./request.js";
import { go, linkTo, put } from "./router.js";
import { complaint, field, kindOf } from "./schema.js";
import { changed, state } from "./store.js";

// By application: its schema, what was typed; kept while the page is open.
const forms = new Map();
let sending = false;
let error = null; // {text, id}: what is wrong, and with which element, if with one
let focus = ""; // the element that is to have the focus after the next drawing

function form(app) {
  if (!forms.has(app)) {
    forms.set(app, { about: null, problem: "", again: "", note: "", ...blank() });
  }
  return forms.get(app);
}

const chosen = () => {
  const wanted = state.route.query.get("app");
  const apps = state.apps ?? [];
  return apps.some((one) => one.name === wanted) ? wanted : apps[0]?.name;
};

async function load(app) {
  const mine = app && form(app);
  if (!mine) return;
  try {
    mine.about ??= await get(`v1/apps/${encodeURIComponent(app)}`);
    await fillAgain(mine, state.route.query.get("again") ?? "");
  } catch (failure) {
    mine.problem = failure.message;
  }
  changed();
}

// Fills in what the query `id` asked, once.
async function fillAgain(mine, id) {
  if (!id || mine.again === id) return;
  mine.again = id;
  const { asked } = await get(queryPath(id)).catch(() => ({}));
  if (asked) fill(mine, asked);
  else mine.note = "What that query asked is not kept any more.";
}

function draw() {
  const app = chosen();
  if (!app) {
    return html`<div class="card narrow"><h1>No applications</h1>
      <p>This server serves none. Start it with <code>teola serve</code> for those that are installed, or
        <code>teola serve mine.py:app</code> for your own.</p></div>`;
  }
  return html`<form class="card narrow ask" @submit=${send} @keydown=${onKey} novalidate>
    <h1>Ask</h1>
    ${apps(app)} ${fields(app, form(app))}
  </form>`;
}

const apps = (app) => html`<fieldset class="apps">
  <legend>Application</legend>
  ${state.apps.map(
    ({ name, description }) => html`<label class="choice">
      <input type="radio" name="app" value=${name} .checked=${name === app}
        @change=${() => { error = null; put("again", ""); put("app", name); load(name); }}>
      <span><b>${name}</b><small>${description}</small></span></label>`,
  )}
</fieldset>`;

function fields(app, mine) {
  if (mine.problem) return html`<p class="error" role="alert">${mine.problem}</p>`;
  if (!mine.about) return html`<p class="wait" role="status">Asking what it needs …</p>`;
  const { properties, required = [] } = mine.about.inputs;
  const parts = Object.entries(properties).map(([name, schema], i) => ({ name, schema, i }));
  const needed = ({ name }) => required.includes(name);
  const rank = (one) => (needed(one) ? 0 : kindOf(one.schema) === "documents" ? 1 : 2);
  const one = ({ name, schema }) => {
    if (kindOf(schema) === "documents") return drop(name, mine.documents, wrongOf(`files-${name}`));
    const id = `input-${name}`;
    const onInput = (text) => { mine.texts[name] = text; righted(id); };
    const is = required.includes(name);
    const first = name === required[0];
    const text = mine.texts[name];
    return field({ id, label: name, schema, text, needed: is, first, wrong: wrongOf(id), onInput });
  };
  const above = parts.filter((p) => rank(p) < 2).sort((a, b) => rank(a) - rank(b) || a.i - b.i);
  const below = parts.filter((p) => rank(p) === 2);
  return html`${mine.note ? html`<p class="note">${mine.note}</p>` : nothing}
    ${above.map(one)} ${more(mine, below.map(one))}
    ${error && !error.id ? complaint("form", error.text) : nothing}
    <div class="row">
      <button class="main" ?disabled=${sending}>${sending ? "Sending …" : "Ask"}</button>
      <small>or <kbd>Ctrl</kbd> + <kbd>Enter</kbd></small>
    </div>`;
}

const wrongOf = (id) => (error?.id === id ? error.text : "");

// The field was changed, so what was said of it may be true no longer.
function righted(id) {
  if (error?.id !== id) return;
  error = null;
  changed();
}

// What has a default, by component.
function more(mine, rest) {
  const groups = new Map();
  for (const [name, schema] of Object.entries(mine.about.parameters.properties)) {
    const [component, parameter] = name.split(/\.(.*)/s);
    if (!groups.has(component)) groups.set(component, []);
    groups.get(component).push({ name, parameter, schema });
  }
  const one = ({ name, parameter, schema }) => {
    const id = `param-${name}`;
    const onInput = (text) => { mine.params[name] = text; righted(id); };
    const text = mine.params[name];
    return field({ id, label: parameter, schema, text, wrong: wrongOf(id), onInput });
  };
  const set = Object.values(mine.params).filter((text) => text?.trim()).length;
  return html`<details class="more">
    <summary>More${set ? html` <small>${set} set</small>` : nothing}</summary>
    ${rest}
    <div class="field">
      <label for="passes">passes</label>
      <select id="passes" @change=${(event) => { mine.passes = event.target.value; }}>
        ${PASSES.map(([value, label]) => html`<option value=${value}
          ?selected=${value === mine.passes}>${label}</option>`)}
      </select>
    </div>
    <div class="field">
      <label for="deadline">deadline, in seconds</label>
      <input id="deadline" type="number" min="0.1" max="3600" step="any" placeholder="120"
        .value=${mine.deadline} @input=${(event) => { mine.deadline = event.target.value; }}>
    </div>
    ${[...groups].map(([name, parts]) => html`<fieldset class="group"><legend>${name}</legend>
      ${parts.map(one)}</fieldset>`)}
  </details>`;
}

function onKey(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    event.currentTarget.requestSubmit();
  }
}

async function send(event) {
  event.preventDefault();
  if (sending) return;
  const app = chosen();
  error = null;
  try {
    const { asked, send: sent } = body(form(app));
    sending = true;
    changed();
    const id = await begin(app, sent, asked);
    sending = false;
    go(linkTo(id));
  } catch (failure) {
    sending = false;
    error = { text: failure.message, id: failure.id };
    focus = failure.id ?? "";
    changed();
  }
}

// Leads to the element that is wrong.
function drawn() {
  const found = focus && document.getElementById(focus);
  focus = "";
  if (!found) return;
  found.closest("details:not([open])")?.setAttribute("open", "");
  found.focus();
}

export const ask = { draw, drawn, arrive: () => load(chosen()), moved: () => load(chosen()) };
