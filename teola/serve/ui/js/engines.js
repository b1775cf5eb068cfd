// The engines: what waits, what runs on each instance, how large batches were; of LLMs also what each
// instance keeps of prompts, and how much of them was found.
import { html, nothing, svg } from "../vendor/lit-html/lit-html.js";
import { get } from "./api.js";
import { every } from "./every.js";
import { count, plural } from "./format.js";
import { classOf, words } from "./ops.js";
import { changed } from "./store.js";

const EVERY = 2000; // ms
const KEPT = 60; // readings of each queue
const BAR = 6;
const HIGH = 36;

let found = null;
let trouble = "";
const history = new Map(); // engine -> queue lengths, oldest first
const most = new Map(); // engine and instance -> the most KV tokens that it said were free

async function load() {
  try {
    found = (await get("v1/engines")).engines;
    trouble = "";
    found.forEach(remember);
  } catch (error) {
    trouble = error.status ? error.message : "The server does not answer; it is asked again soon.";
  }
  changed();
}

function remember({ name, queued, instances }) {
  history.set(name, [...(history.get(name) ?? []), queued].slice(-KEPT));
  for (const { instance, kv_free_tokens: free } of instances) {
    const key = `${name} ${instance}`;
    if (free !== null) most.set(key, Math.max(free, most.get(key) ?? 1));
  }
}

const refresh = every(EVERY, load);

function draw() {
  return html`<div class="head"><div class="row"><h1>Engines</h1>
      <span class="facts">${found ? plural(found.length, "engine") : ""}</span></div></div>
    ${trouble ? html`<p class="error" role="alert">${trouble}</p>` : nothing}
    ${!found && !trouble ? html`<p class="wait" role="status">Asking …</p>` : nothing}
    ${found && !found.length
      ? html`<div class="card empty"><p>No engine runs yet: they start with the server, or with the first
          query that needs one.</p></div>`
      : nothing}
    <div class="engines">${found?.map(card)}</div>`;
}

function card(engine) {
  const hue = classOf(engine.ops.find((op) => classOf(op) !== "control") ?? "tool_call");
  return html`<section class="card engine" aria-labelledby="engine-${engine.name}">
    <h2 id="engine-${engine.name}"><i class="swatch op-${hue}"></i>${engine.name}
      <small>${engine.type === engine.name ? nothing : engine.type}</small></h2>
    <dl class="figures">
      <div><dt>queued</dt><dd>${count(engine.queued)}${
        engine.held ? html` <small>${count(engine.held)} held</small>` : nothing}</dd></div>
      <div><dt>in flight</dt><dd>${count(engine.in_flight)}</dd></div>
      <div class="chart"><dt>queue, last ${Math.round((KEPT * EVERY) / 60000)} min</dt>
        <dd>${bars(history.get(engine.name) ?? [], "queue lengths", hue)}</dd></div>
      <div class="chart"><dt>recent batches</dt>
        <dd>${bars(engine.recent_batches.map((b) => b.size), "batch sizes", hue)}</dd></div>
    </dl>
    ${table(engine)} ${apps(engine)}
    <p class="dim"><small>${unlike(engine) || !engine.instances[0]?.about ? nothing : html`${engine.instances[0].about} · `}${
      engine.ops.map(words).join(", ")}${engine.ops.length ? " · " : ""}${
      engine.batching} batching, ${engine.routing.replaceAll("_", " ")} routing · ${
      engine.continuous
        ? `at most ${count(engine.max_sequences)} calls and ${count(engine.max_batch)} prompt tokens in prefilling on an instance`
        : `batches of at most ${plural(engine.max_batch, "item")}, ${count(engine.concurrency)} at once on an instance`
    }</small></p>
  </section>`;
}

// Small bars, the newest at the right; what they show is also said in words.
function bars(values, what, hue) {
  if (!values.length) return html`<small class="dim">none yet</small>`;
  const top = Math.max(1, ...values);
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  const told = `${what}: last ${values.at(-1)}, mean ${mean.toFixed(1)}, most ${Math.max(...values)}`;
  const width = KEPT * BAR;
  const left = width - values.length * BAR;
  return html`<svg class="bars op-${hue}" viewBox="0 0 ${width} ${HIGH}" preserveAspectRatio="none" role="img"
      aria-label=${told}>
    ${values.map((value, k) => svg`<rect x=${left + k * BAR} width=${BAR - 1.5}
      y=${HIGH - Math.max(1, (value / top) * HIGH)} height=${Math.max(1, (value / top) * HIGH)}></rect>`)}
  </svg><small class="digits">last ${values.at(-1)} · mean ${mean.toFixed(1)} · most ${Math.max(...values)}</small>`;
}

const table = (engine) => html`<table class="instances">
  <thead><tr><th scope="col">Instance</th><th scope="col">State</th><th scope="col" class="right">In flight</th>
    ${engine.continuous
      ? html`<th scope="col" class="right">Bound</th><th scope="col" class="right">To prefill</th>
        <th scope="col" class="right">Found</th>`
      : html`<th scope="col" class="right">Batches</th>`}</tr></thead>
  ${engine.instances.map((one) => html`<tbody>${row(engine, one)}
    ${engine.continuous ? memory(engine, one) : nothing}</tbody>`)}
</table>`;

// Whether its instances are not all the same thing: then each says what it is.
const unlike = ({ instances }) => new Set(instances.map(({ about }) => about)).size > 1;

const about = (one) => html` <small class="dim about">${one.about}</small>`;

const SIGNS = { up: "✓", recovering: "◐", closed: "◷", ejected: "✕", down: "✕", gone: "✕" };

const row = (engine, one) => html`<tr>
  <td>#${one.instance}${unlike(engine) && !engine.continuous ? about(one) : nothing}</td>
  <td><span class="badge is-${one.state}"><span aria-hidden="true">${SIGNS[one.state]}</span>
    ${one.state}</span>${one.opens_s === null ? nothing : limited(one)}</td>
  <td class="right digits">${count(one.in_flight)}</td>
  ${engine.continuous
    ? html`<td class="right digits">${count(one.bound)}</td><td class="right digits">${count(one.weight)}</td>
      <td class="right digits" title=${toldOf(one.recent_hits)}>${ratio(one.recent_hits)}</td>`
    : html`<td class="right digits">${count(one.batches)} of ${count(engine.concurrency)}</td>`}
</tr>`;

const limited = ({ opens_s: seconds }) => html` <small class="dim digits">waits for the server's
  rate limit, ${Math.ceil(seconds)} s</small>`;

const ratio = ({ prompt_tokens: all, found_tokens: found }) =>
  all ? `${Math.round((100 * found) / all)} %` : "–";
const toldOf = ({ prompt_tokens: all, found_tokens: found }) =>
  all ? `${count(found)} of ${count(all)} prompt tokens were found in its cache` : "";

// The KV memory of an LLM's instance: prefixes that it keeps, and what calls occupy.
const memory = (engine, one) => html`<tr class="memory"><td colspan="6">${unlike(engine) ? html`<p>${about(one)}</p>` : nothing}
  ${kept(one)} ${used(engine, one)}${
  one.kv_held_tokens === null && one.kv_free_tokens === null
    ? html`<small class="dim">KV memory: not told</small>`
    : nothing}</td></tr>`;

function kept({ instance, kv_held_tokens: held, kv_told: told, kv_capacity_tokens: all }) {
  if (held === null) return nothing;
  const known = told ? "as it tells" : "assumed";
  if (all === null) return html`<small class="digits">keeps ${plural(held, "token")} of prompts, ${known}</small>`;
  const part = Math.min(100, (100 * held) / all);
  return html`<svg class="held" viewBox="0 0 100 8" preserveAspectRatio="none" role="img"
      aria-label="Instance ${instance} keeps ${Math.round(part)} % of what it can keep">
      <rect width=${part} height="8"></rect></svg>
    <small class="digits">keeps ${count(held)} of ${plural(all, "token")}, ${known}</small>`;
}

// Engines tell how much is free; the most that was ever free stands for all of it.
function used({ name }, { instance, kv_free_tokens: free }) {
  if (free === null) return nothing;
  const all = most.get(`${name} ${instance}`);
  const part = Math.max(0, Math.round((100 * (all - free)) / all));
  return html`<label><meter min="0" max="100" high="90" value=${part}></meter>
    <small class="digits">${part} % in use, ${count(free)} tokens free</small></label>`;
}

// What calls of each application found, of those that you asked last.
function apps({ apps: found }) {
  if (!found?.length) return nothing;
  return html`<table class="instances by-app">
    <thead><tr><th scope="col">Application</th><th scope="col" class="right">Prompt tokens</th>
      <th scope="col" class="right">Found</th></tr></thead>
    <tbody>${found.map((one) => html`<tr><td>${one.name}</td>
      <td class="right digits">${count(one.prompt_tokens)}</td>
      <td class="right digits" title=${toldOf(one)}>${ratio(one)}</td></tr>`)}</tbody>
  </table>`;
}

export const engines = { draw, arrive: refresh.start, leave: refresh.stop };
