// Ask: choose an application, fill in what it needs, send.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { get } from "./api.js";
import { drop, isEmpty, none } from "./documents.js";
import { begin } from "./live.js";
import { go, linkTo, put } from "./router.js";
import { field, kindOf, valueOf } from "./schema.js";
import { changed, state } from "./store.js";

const PASSES = [
  ["", "as the application has them"],
  ["all", "all passes"],
  ["none", "none: the graph as the template has it"],
];

// By application: its schema, what was typed; kept while the page is open.
const forms = new Map();
let sending = false;
let error = "";

function form(app) {
  if (!forms.has(app)) {
    forms.set(app, {
      about: null, problem: "", texts: {}, params: {}, documents: none(), passes: "", deadline: "",
    });
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
  if (!mine || mine.about) return;
  try {
    mine.about = await get(`v1/apps/${encodeURIComponent(app)}`);
  } catch (failure) {
    mine.problem = failure.message;
  }
  changed();
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
        @change=${() => { error = ""; put("app", name); load(name); }}>
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
    if (kindOf(schema) === "documents") return drop(name, mine.documents);
    const onInput = (text) => { mine.texts[name] = text; };
    const is = required.includes(name);
    const first = name === required[0];
    const text = mine.texts[name];
    return field({ id: `input-${name}`, label: name, schema, text, needed: is, first, onInput });
  };
  const above = parts.filter((p) => rank(p) < 2).sort((a, b) => rank(a) - rank(b) || a.i - b.i);
  const below = parts.filter((p) => rank(p) === 2);
  return html`${above.map(one)} ${more(mine, below.map(one))}
    ${error ? html`<p class="error" role="alert">${error}</p>` : nothing}
    <div class="row">
      <button class="main" ?disabled=${sending}>${sending ? "Sending …" : "Ask"}</button>
      <small>or <kbd>Ctrl</kbd> + <kbd>Enter</kbd></small>
    </div>`;
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
    const onInput = (text) => { mine.params[name] = text; };
    return field({ id: `param-${name}`, label: parameter, schema, text: mine.params[name], onInput });
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

// The request's body: JSON, and a form around it where there are files.
function body(mine) {
  const told = { inputs: {}, overrides: {}, mode: "stream" };
  const { properties, required = [] } = mine.about.inputs;
  let documents = "";
  for (const [name, schema] of Object.entries(properties)) {
    if (kindOf(schema) === "documents") documents = name;
    const value = valueOf(name, schema, mine.texts[name]);
    if (value !== undefined) told.inputs[name] = value;
    else if (required.includes(name)) throw new Error(`${name} is needed: write something there`);
  }
  for (const [name, schema] of Object.entries(mine.about.parameters.properties)) {
    const value = valueOf(name, schema, mine.params[name]);
    if (value !== undefined) told.overrides[name] = value;
  }
  if (documents && isEmpty(mine.documents) && !told.inputs.collection) {
    throw new Error("Add a document, or name a collection under “More”.");
  }
  if (mine.passes) told.passes = mine.passes;
  if (mine.deadline) told.deadline_s = Number(mine.deadline);
  if (mine.documents.pasted.length) told.inputs[documents] = mine.documents.pasted;
  if (!mine.documents.files.length) return { told, send: JSON.stringify(told) };
  const send = new FormData();
  send.set("request", JSON.stringify(told));
  for (const file of mine.documents.files) send.append(documents, file, file.name);
  return { told, send };
}

async function send(event) {
  event.preventDefault();
  if (sending) return;
  const app = chosen();
  error = "";
  try {
    const { told, send: sent } = body(form(app));
    sending = true;
    changed();
    const id = await begin(app, sent, told.inputs.question ?? "");
    sending = false;
    go(linkTo(id));
  } catch (failure) {
    sending = false;
    error = failure.message;
    changed();
  }
}

export const ask = { draw, arrive: () => load(chosen()), moved: () => load(chosen()) };
