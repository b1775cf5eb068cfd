// What a query grew: all parts of a kind as one row, with a strip of when they ran; open it to see each.
import { html, nothing, svg } from "../vendor/lit-html/lit-html.js";
import { count, plural, seconds } from "./format.js";
import { changed } from "./store.js";

const WIDE = 1000; // of a strip, in units of its own
const LANES = 6; // of a strip, for parts side by side
const DEEPEST = 6; // that is shown further in than what is around it

const open = new Set(); // paths of the rows that are open

export const resetParts = () => open.clear();

// How many primitives there are in all its parts that are known.
export const grown = ({ timeline }) => every(timeline?.parts?.kinds ?? []).reduce((sum, part) => sum + part.primitives, 0);

export const hasParts = ({ timeline }) =>
  Boolean(timeline?.parts) && (timeline.parts.kinds.length > 0 || timeline.parts.more.parts > 0);

export function parts({ timeline }) {
  const { kinds, more } = timeline.parts;
  const end = Math.max(timeline.end_s, 1e-6);
  const all = every(kinds);
  return html`<p class="lead dim">${plural(all.length + more.parts, "part")}${
    more.parts ? nothing : html` with ${plural(grown({ timeline }), "primitive")}`}, added while it ran. Open a row to see
      its parts one by one.</p>
    <ul class="parts whole" tabindex="0" role="region" aria-label="Parts, scrolls">${rows(kinds, "", 0, end)}</ul>
    ${more.parts
      ? html`<p class="hint">${count(more.parts)} of the parts are counted but not recorded one by one${
          more.failed ? `; ${count(more.failed)} of them failed` : ""}.</p>`
      : nothing}`;
}

const every = (kinds) =>
  kinds.flatMap((kind) => kind.parts.flatMap((part) => [part, ...every(part.kinds ?? [])]));

const rows = (kinds, path, depth, end) => kinds.map((kind) => kindRow(kind, `${path}/${kind.name}`, depth, end));

function kindRow(kind, path, depth, end) {
  const isOpen = open.has(path);
  const [first] = kind.parts;
  const several = kind.parts.length > 1;
  return html`<li>
    <div class="part kind depth-${Math.min(depth, DEEPEST)}">
      ${toggle(path, html`${kind.name} <span class="dim">×${count(kind.parts.length)}</span>`)}
      <span class="took digits" title=${several ? "the median's time" : ""}>${several ? "~" : ""}${seconds(kind.median_s)}</span>
      <span>${statesOf(kind.states)}</span>
      ${strip(kind.parts, end, `${kind.name}: ${plural(kind.parts.length, "part")} from ${seconds(first.start)} on`)}
    </div>
    ${isOpen
      ? html`<ul class="parts">${kind.parts.map((part, k) => partRow(part, kind, `${path}/${k}`, depth + 1, end))}</ul>`
      : nothing}
  </li>`;
}

function partRow(part, kind, path, depth, end) {
  const name = part.label || kind.name;
  const told = part.tokens ? plural(part.tokens, "token") : plural(part.primitives, "primitive");
  return html`<li>
    <div class="part depth-${Math.min(depth, DEEPEST)}">
      ${part.kinds ? toggle(path, name) : html`<span class="name">${name}</span>`}
      <span class="took digits">${seconds(part.end - part.start)}</span>
      <span>${statesOf({ [part.state]: 1 }, true)} <small>${told}</small></span>
      ${strip([part], end, `${name}: at ${seconds(part.start)} for ${seconds(part.end - part.start)}, ${part.state}`)}
    </div>
    ${part.kinds && open.has(path) ? html`<ul class="parts">${rows(part.kinds, path, depth + 1, end)}</ul>` : nothing}
  </li>`;
}

const toggle = (path, name) => html`<button class="name" aria-expanded=${open.has(path)} @click=${() => {
  if (!open.delete(path)) open.add(path);
  changed();
}}>${name}</button>`;

const statesOf = (states, alone) => Object.entries(states).map(([state, n]) =>
  html`<span class="badge is-${state}">${alone ? "" : `${count(n)} `}${state}</span> `);

// When they ran, of the whole query: side by side in lanes; failures are drawn last, above the others.
function strip(parts, end, told) {
  const lanes = lanesOf(parts);
  const height = 16 / Math.max(...lanes.values(), 1);
  const order = [...parts].sort((a, b) => (a.state === "failed") - (b.state === "failed"));
  return html`<svg viewBox="0 0 ${WIDE} 16" preserveAspectRatio="none" role="img" aria-label=${told}>
    <title>${told}</title>
    ${order.map((part) => {
      const wide = Math.max(2, ((part.end - part.start) / end) * WIDE);
      return svg`<rect class="is-${part.state}" x=${Math.min((part.start / end) * WIDE, WIDE - wide)} width=${wide}
        y=${(lanes.get(part) - 1) * height + 1} height=${Math.max(1, height - 1)}></rect>`;
    })}
  </svg>`;
}

// Part -> the first lane, from 1 on, that is free when it begins; the last one has the rest.
function lanesOf(parts) {
  const free = [];
  return new Map(parts.map((part) => {
    const found = free.findIndex((until) => until <= part.start + 1e-9);
    const lane = Math.min(found < 0 ? free.length : found, LANES - 1);
    free[lane] = Math.max(free[lane] ?? 0, part.end);
    return [part, lane + 1];
  }));
}
