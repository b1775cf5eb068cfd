// What the primitive that is held has read and given, as far as the server keeps it: its prompt in
// parts, inputs, outputs, tokens, and whose work was in its batches. All of it is text, never markup.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { get, queryPath } from "./api.js";
import { count, plural, visible } from "./format.js";
import { changed } from "./store.js";

let kept = { key: "", found: null, trouble: "" };

const WHY = {
  off: "Values are not kept: keep_values is off on this server.",
  full: "The 8 MiB that are kept of one query's values are used up.",
  forgotten: "What was kept of this query was deleted.",
};

// as: what changes when there is more to see, such as the state of the primitive.
export function values(query, id, as) {
  const key = [query.id, id, as].join(" ");
  if (kept.key !== key) load(key, queryPath(query.id, `/primitives/${id.split("/").map(encodeURIComponent).join("/")}`));
  const { found, trouble } = kept;
  if (trouble) return html`<p class="empty">${trouble}</p>`;
  return found ? told(found, query.id) : html`<p class="empty">…</p>`;
}

async function load(key, path) {
  kept = { key, found: null, trouble: "" };
  try {
    const found = await get(path);
    if (kept.key === key) kept = { key, found, trouble: "" };
  } catch (error) {
    if (kept.key === key) kept = { key, found: null, trouble: error.message };
  }
  changed();
}

function told({ prompt, inputs, outputs, tokens, batches, kept: level }, own) {
  const nothingKept = !prompt && !inputs && !outputs;
  return html`<div class="values" tabindex="0" role="group" aria-label="Values">
    ${tokens
      ? html`<p class="digits">${count(tokens.in)} tokens in, ${count(tokens.cached)} of them found in the
          cache, ${count(tokens.out)} out</p>`
      : nothing}
    ${batches.map((one) => batch(one, own))}
    ${prompt ? html`<h3>prompt</h3>${prompt.filter(({ text }) => text.trim()).map(part)}` : nothing}
    ${inputs ? fields("in", inputs) : nothing}
    ${outputs ? fields("out", outputs) : nothing}
    ${nothingKept ? html`<p class="empty">${WHY[level] ?? "Nothing of its values is kept."}</p>` : nothing}
  </div>`;
}

const part = ({ role, text, before }) => html`<pre class=${before ? "before" : ""} dir="auto"
  title=${before ? `${role}, prefilled by an earlier primitive` : role}>${visible(text.trim())}</pre>`;

function fields(title, found) {
  const names = Object.keys(found);
  return names.length
    ? html`<h3>${title}</h3>${names.map((name) => html`<p class="ref">${name}</p>
        <pre dir="auto">${asText(found[name])}</pre>`)}`
    : nothing;
}

const asText = (value) => visible(typeof value === "string" ? value : JSON.stringify(value, null, 2));

function batch({ batch: number, size, queries, others }, own) {
  if (size < 2) return nothing;
  const mine = queries.filter((id) => id !== own);
  return html`<p class="digits">batch ${number} of ${size}${mine.length
    ? html`, with your ${mine.map((id, i) => html`${i ? ", " : ""}<a href="#/queries/${id}">${id.slice(0, 8)}</a>`)}`
    : nothing}${others ? `, with ${plural(others, "place")} of others` : nothing}</p>`;
}
