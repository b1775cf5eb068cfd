// What a query asks people: a form for each question, made from the JSON Schema of its answer.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { live } from "../vendor/lit-html/directives/live.js";
import { call, queryPath, Refused } from "./api.js";
import { visible } from "./format.js";
import { field, kindOf, typed, valueOf } from "./schema.js";
import { changed, say } from "./store.js";

const MOST_FIELDS = 12;
const MOST_OF_A_LINE = 60; // characters
const SIMPLE = ["choice", "yes", "number", "text", "texts"];

// By query and question: what was typed, and which way to answer is open; until it is answered.
const forms = new Map();

function formOf(key) {
  if (!forms.has(key)) forms.set(key, { way: "", texts: {}, text: undefined, error: "", sending: false });
  return forms.get(key);
}

// open: what query `id` asks. answered: told what the server says of the query after an answer, or
// null where somebody was faster.
export const asks = (id, open, answered) => open.map((one) => question(id, one, answered));

function question(id, one, answered) {
  const key = `${id}-${one.ask}`;
  const form = formOf(key);
  const send = (read) => post(id, one, key, read, answered);
  return html`<div class="asks kind-of-${one.kind}" role="group" aria-labelledby="h-${key}" data-ask=${one.ask}>
    <p class="asks-what" id="h-${key}" dir="auto">${visible(one.question)}</p>
    ${(FORMS[one.kind] ?? plain)({ one, form, send, key })}
    ${form.error ? html`<p class="error" role="alert">${form.error}</p>` : nothing}
    <small>asked by <code>${one.component}</code>, as <code>${one.ask}</code></small>
  </div>`;
}

async function post(id, one, key, read, answered) {
  const form = formOf(key);
  form.error = "";
  try {
    const body = JSON.stringify({ ask: one.ask, answer: read() });
    form.sending = true;
    changed();
    const headers = { "content-type": "application/json" };
    const response = await call(queryPath(id, "/answers"), { method: "POST", headers, body });
    const told = await response.json();
    forms.delete(key);
    say("The answer was sent");
    answered(told);
  } catch (error) {
    const lost = error instanceof TypeError;
    form.error = lost ? "The server does not answer; try again." : error.message;
    if (error instanceof Refused && error.status === 409) answered(null);
  }
  form.sending = false;
  changed();
}

// --- the kinds of questions -----------------------------------------------------------------

function plain({ one, form, send, key }) {
  const values = choices(one.schema);
  if (values) {
    return html`<div class="row">${values.map((value) => html`<button ?disabled=${form.sending}
      @click=${() => send(() => value)}>${told(value)}</button>`)}</div>`;
  }
  const { draw, read } = answerOf({ schema: one.schema, form, key, label: "answer" });
  return filled({ form, send: () => send(read), label: "Send", body: draw() });
}

function approve({ one, form, send, key }) {
  const { tool, arguments: given } = one.about;
  const schema = { ...one.schema.properties.arguments, $defs: one.schema.$defs };
  const { draw, read } = answerOf({ schema, form, key, label: "arguments", given });
  return html`<div class="call"><b>${tool}</b>${table(given)}</div>
    <div class="row">
      <button class="main" ?disabled=${form.sending} @click=${() => send(() => ({ do: "approve" }))}>Approve</button>
      ${way(form, "edit", "Edit")} ${way(form, "reject", "Reject")}
    </div>
    ${form.way === "edit"
      ? filled({
        form, body: draw(), label: "Approve with these",
        send: () => send(() => ({ do: "approve", arguments: read() })),
      })
      : nothing}
    ${form.way === "reject" ? filled({
      form, label: "Reject it", body: area({ id: `${key}-reason`, form, label: "Why, for the model" }),
      send: () => send(() => (form.text?.trim() ? { do: "reject", reason: form.text } : { do: "reject" })),
    }) : nothing}`;
}

function unknown({ one, form, send, key }) {
  const { tool, arguments: given, inputs } = one.about;
  const { result } = one.schema.properties;
  const isText = result.type === "string";
  const read = (text) => (isText ? text : textOrJson(text));
  return html`<div class="call">${tool ? html`<b>${tool}</b>` : nothing}${table(given ?? inputs)}</div>
    <p>Look where it works whether it was done: the server cannot know. What is done already must not be
      repeated.</p>
    <div class="row">
      <button ?disabled=${form.sending} @click=${() => send(() => ({ do: "repeat" }))}>Repeat it</button>
      ${way(form, "take", "It is done")}
      <button ?disabled=${form.sending} @click=${() => send(() => ({ do: "fail" }))}>Let it fail</button>
    </div>
    ${form.way === "take" ? filled({
      form, label: "Go on with this",
      body: area({ id: `${key}-result`, form, label: isText ? "What it gave" : "What it gave, a text or JSON" }),
      send: () => send(() => ({ do: "take", result: read(form.text ?? "") })),
    }) : nothing}`;
}

const FORMS = { approve, unknown };

// --- their parts ----------------------------------------------------------------------------

function choices(schema) {
  const kind = kindOf(schema);
  if (kind === "choice") return schema.enum ?? null;
  return kind === "yes" ? [true, false] : null;
}

function told(value) {
  if (typeof value === "boolean") return value ? "Yes" : "No";
  return typeof value === "string" ? value : JSON.stringify(value);
}

// A button that opens a way to answer, and closes it again.
const way = (form, name, label) => html`<button type="button" aria-expanded=${form.way === name}
  ?disabled=${form.sending} @click=${() => {
    form.way = form.way === name ? "" : name;
    form.text = undefined;
    form.error = "";
    changed();
  }}>${label} …</button>`;

const filled = ({ form, send, label, body }) => html`<form class="asks-form" novalidate @submit=${(event) => {
  event.preventDefault();
  send();
}}>
  ${body}
  <div class="row"><button class="main" ?disabled=${form.sending}>${label}</button></div>
</form>`;

// {draw, read}: fields for a value of that schema, and the value that was typed. given: what it is
// before anything is typed.
function answerOf({ schema, form, key, label, given }) {
  const properties = Object.entries(schema.properties ?? {});
  const simple = properties.every(([, one]) => SIMPLE.includes(kindOf(one)));
  if (schema.type === "object" && properties.length && properties.length <= MOST_FIELDS && simple) {
    return objectOf({ schema, properties, form, key, given });
  }
  const now = () => form.text ?? (given === undefined ? "" : JSON.stringify(given, null, 2));
  const kind = kindOf(schema);
  return {
    draw: () => area({ id: `${key}-answer`, form, label, text: now(), hint: HINTS[kind] ?? "", number: kind === "number" }),
    read() {
      if (kind === "text") return now();
      if (kind === "texts") return now().split("\n").filter((line) => line.trim());
      const value = valueOf(label, schema, now());
      if (value === undefined) throw new Error(`The ${label} is needed: write something there.`);
      return value;
    },
  };
}

const HINTS = { json: "JSON", texts: "one a line" };

function objectOf({ schema, properties, form, key, given = {} }) {
  const required = schema.required ?? [];
  const now = (name, one) => form.texts[name] ?? (name in given ? typed(one, given[name]) : undefined);
  return {
    draw: () => properties.map(([name, one]) => {
      const onInput = (text) => { form.texts[name] = text; };
      const needed = required.includes(name);
      return field({ id: `${key}-${name}`, label: name, schema: one, text: now(name, one), needed, none: "–", long: isLong(given[name]), onInput });
    }),
    read() {
      const found = {};
      for (const [name, one] of properties) {
        const value = valueOf(name, one, now(name, one));
        if (value !== undefined) found[name] = value;
        else if (required.includes(name)) throw new Error(`${name} is needed: write something there.`);
      }
      return found;
    },
  };
}

// Whether a text has no room in a field of one line.
const isLong = (value) => typeof value === "string" && (value.length > MOST_OF_A_LINE || value.includes("\n"));

function area({ id, form, label, text = form.text ?? "", hint = "", number = false }) {
  const type = (event) => { form.text = event.target.value; };
  return html`<div class="field">
    <label for=${id}>${label}</label>
    ${number
      ? html`<input id=${id} type="number" step="any" .value=${live(text)} @input=${type}>`
      : html`<textarea id=${id} rows="3" dir="auto" placeholder=${hint} .value=${live(text)} @input=${type}></textarea>`}
  </div>`;
}

const table = (given) => html`<dl>${Object.entries(given ?? {}).map(([name, value]) => html`<dt>${visible(name)}</dt>
  <dd dir="auto">${visible(typeof value === "string" ? value : JSON.stringify(value))}</dd>`)}</dl>`;

function textOrJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
