// One hue for each class of operations, the same in graphs, timeline and summaries; the names of
// the classes are those of the colours in style/base.css.
import { html } from "../vendor/lit-html/lit-html.js";

export const CLASSES = {
  embed: { label: "embedding", ops: ["embedding"] },
  store: { label: "store and search", ops: ["ingestion", "searching"] },
  rank: { label: "reranking", ops: ["reranking"] },
  prefill: { label: "prefilling", ops: ["prefilling", "partial_prefilling", "full_prefilling"] },
  decode: { label: "decoding", ops: ["decoding", "partial_decoding"] },
  call: { label: "calls and outside", ops: ["tool_call", "web_search", "sql"] },
  control: { label: "in the server", ops: ["condition", "aggregate", "grow"] },
  people: { label: "waiting for people", ops: ["wait"] },
  load: { label: "reading documents, planning", ops: ["load", "optimise"] },
};

const BY_OP = new Map(
  Object.entries(CLASSES).flatMap(([name, { ops }]) => ops.map((op) => [op, name])),
);

export const classOf = (op) => BY_OP.get(op) ?? "call";

export const words = (op) => op.replaceAll("_", " ");

export const legend = (ops) => {
  const used = new Set(ops.map(classOf));
  const shown = Object.entries(CLASSES).filter(([name]) => used.has(name));
  return html`<ul class="legend" aria-label="Colours">
    ${shown.map(([name, { label }]) => html`<li><i class="swatch op-${name}"></i>${label}</li>`)}
  </ul>`;
};
