// A strip over the window's lower end that says what the primitive pointed at was, and when. It is
// there only while one is, lies over the page, so that nothing moves, and makes way for the pointer.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { plural, seconds, shorter } from "./format.js";
import { classOf, words } from "./ops.js";
import { isHeld, letGo, shown } from "./pointing.js";
import { namesOf } from "./lanes.js";
import { values } from "./values.js";

const HIGH = 150; // px that it may take
let low = false; // the pointer is where the strip would be

export function follow({ clientY }) {
  low = clientY > innerHeight - HIGH;
}

export function inspector(query) {
  const what = shown();
  const found = what && describe(what, query);
  const inside = found && isHeld(what.graph, what.id) && held(what, query);
  const where = `${low && !inside ? "above" : ""} ${inside ? "open" : ""}`;
  return found
    ? html`<aside class="inspector ${where}" aria-label="The primitive pointed at">${found}${inside || nothing}</aside>`
    : nothing;
}

// Values of the one that is held; of the p-graph those of what it became, if that is one.
function held({ graph, id }, query) {
  const { origins } = query.explanation;
  const made = Object.keys(origins).filter((e) => origins[e] === id);
  const ran = graph === "p" ? made.length === 1 && made[0] : id;
  const last = (query.timeline?.spans ?? []).findLast((span) => span.primitive === ran);
  return last && values(query, ran, last.state);
}

function describe({ graph, id, span }, { explanation, timeline }) {
  const whole = graph === "p" ? explanation.p_graph : explanation.e_graph;
  const primitive = whole.primitives.find((p) => p.id === id);
  const spans = timeline?.spans ?? [];
  if (!primitive) return apart(spans[span]?.primitive === id ? spans[span] : spans.find((one) => one.primitive === id), spans);
  const reads = whole.edges.filter((edge) => edge.to === id);
  const made = Object.keys(explanation.origins).filter((e) => explanation.origins[e] === id);
  const names = new Set(graph === "p" ? made : [id]);
  const ran = spans.filter((one) => names.has(one.primitive));
  return html`<div class="what">
      <i class="swatch op-${classOf(primitive.op)}"></i><b>${id}</b>
      <span>${words(primitive.op)}${primitive.items > 1 ? ` × ${primitive.items}` : nothing}</span>
      <span class="dim">${primitive.engine ? `on ${primitive.engine}` : "in the server"}, component
        ${primitive.component}</span>
      ${isHeld(graph, id)
        ? html`<button class="plain" title="Let go (Esc)" @click=${letGo}>let go</button>`
        : nothing}
    </div>
    <p>${
      reads.length
        ? html`reads ${reads.map((edge, i) => html`${i ? ", " : ""}<span class="ref">${edge.from}</span>${
            edge.kind === "data" ? nothing : ` (${edge.kind})`
          }`)}`
        : "reads only what the query gives"
    }${graph === "p" && !(made.length === 1 && made[0] === id)
      ? html` · became ${made.length ? shorter(made.join(", "), 160) : "nothing"}`
      : nothing}</p>
    <p class="digits">${when(ran, spans[span], spans)}</p>`;
}

// What is not in the query's own graph: a primitive of a part, or a step before the graph.
const apart = (span, spans) => span && (span.engine || span.primitive.includes("/") ? ofPart(span, spans) : step(span));

const ofPart = (span, spans) => html`<div class="what">
    <i class="swatch op-${classOf(span.op)}"></i><b>${span.primitive}</b> <span>${words(span.op)}</span>
    <span class="dim">${span.engine ? `on ${span.engine}` : "in the server"}, component ${span.component}</span></div>
  <p class="digits">${single(span, spans)}</p>`;

const step = (span) => html`<div class="what"><i class="swatch op-load"></i><b>${words(span.op)}</b>
    <span class="dim">in the server, before the graph</span></div>
  <p class="digits">${interval(span)}</p>`;

const interval = (span) =>
  `from ${seconds(span.start)} to ${seconds(span.end)}, ${seconds(span.end - span.start)}`;

function when(ran, pointed, spans) {
  const one = pointed ?? (ran.length === 1 ? ran[0] : null);
  if (one) return single(one, spans);
  if (!ran.length) return "has not run yet";
  const start = Math.min(...ran.map((s) => s.start));
  const end = Math.max(...ran.map((s) => s.end));
  return `ran in ${plural(ran.length, "piece")} from ${seconds(start)} to ${seconds(end)}`;
}

function single(span, spans) {
  if (span.state === "skipped") return "was skipped: what it reads was not there";
  if (span.state === "fused") return "was computed together with the rest of its prompt";
  if (span.state === "queued") {
    return `is ready, and has been waiting for ${seconds(span.end - span.queued)}${span.why ? ` · ${span.why}` : ""}`;
  }
  const cause = spans[span.waited_for];
  return html`${span.state === "done" ? "ran" : span.state} ${interval(span)}${
    span.instance >= 0 ? ` on ${namesOf(span).join(" ")}` : ""
  }${span.batch_size > 1 ? `, in a batch of ${span.batch_size}` : ""}
    ${cause ? html` · became ready with <span class="ref">${cause.primitive}</span>` : nothing}
    ${span.start - span.queued > 5e-5
      ? html` · then waited ${seconds(span.start - span.queued)}${waited(span, spans)}`
      : nothing}${span.why ? ` · ${span.why}` : nothing}${span.error ? html` · <b>${span.error}</b>` : nothing}`;
}

// For whom it waited, and how long for each.
function waited({ waits, engine }, spans) {
  if (!waits) return nothing;
  const behind = [...new Set(waits.behind.map((i) => spans[i].primitive))];
  const told = [
    waits.own_s > 5e-5 && html`${seconds(waits.own_s)} behind <span class="ref">${shorter(behind.join(", "), 80)}</span>`,
    waits.others_s > 5e-5 && `${seconds(waits.others_s)} for others at ${engine}`,
    waits.limits_s > 5e-5 && `${seconds(waits.limits_s)} for a rate limit`,
  ].filter(Boolean);
  return told.map((part, i) => html`${i ? ", " : ": "}${part}`);
}
