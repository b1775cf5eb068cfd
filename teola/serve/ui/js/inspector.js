// A strip over the window's lower end that says what the primitive pointed at was, and when. It is
// there only while one is, lies over the page, so that nothing moves, and makes way for the pointer.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { plural, seconds, shorter } from "./format.js";
import { classOf, words } from "./ops.js";
import { isHeld, letGo, shown } from "./pointing.js";
import { namesOf } from "./lanes.js";

const HIGH = 150; // px that it may take
let low = false; // the pointer is where the strip would be

export function follow({ clientY }) {
  low = clientY > innerHeight - HIGH;
}

export function inspector(query) {
  const what = shown();
  const found = what && describe(what, query);
  const where = low ? "above" : "";
  return found
    ? html`<aside class="inspector ${where}" aria-label="The primitive pointed at">${found}</aside>`
    : nothing;
}

function describe({ graph, id, span }, { explanation, timeline }) {
  const whole = graph === "p" ? explanation.p_graph : explanation.e_graph;
  const primitive = whole.primitives.find((p) => p.id === id);
  const spans = timeline?.spans ?? [];
  if (!primitive) return step(spans.find((one) => one.primitive === id));
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

const step = (span) => span && html`<div class="what"><i class="swatch op-load"></i><b>${words(span.op)}</b>
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
  const behind = blockers(span, spans);
  return html`${span.state === "done" ? "ran" : span.state} ${interval(span)}${
    span.instance >= 0 ? ` on ${namesOf(span).join(" ")}` : ""
  }${span.batch_size > 1 ? `, in a batch of ${span.batch_size}` : ""}
    ${cause ? html` · became ready with <span class="ref">${cause.primitive}</span>` : nothing}
    ${span.start - span.queued > 5e-5
      ? html` · then waited ${seconds(span.start - span.queued)}${
          behind.length ? html` behind <span class="ref">${shorter(behind.join(", "), 80)}</span>` : nothing
        }`
      : nothing}${span.why ? ` · ${span.why}` : nothing}`;
}

// What of this query its engine was doing meanwhile.
export function blockers(span, spans) {
  const others = spans.filter(
    (s) =>
      s !== span && s.engine === span.engine && s.batch !== span.batch && s.primitive !== span.primitive &&
      (span.instance < 0 || s.instance === span.instance) && s.start < span.start - 1e-6 && s.end > span.queued + 1e-6 && s.state !== "queued",
  );
  return [...new Set(others.map((s) => s.primitive))];
}
