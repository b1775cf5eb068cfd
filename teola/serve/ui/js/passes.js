// What each pass did to the p-graph, and why it left the rest alone.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { plural, seconds } from "./format.js";
import { words } from "./ops.js";
import { hold, lit, point } from "./pointing.js";

const UNKNOWN = "not known yet";
const ENDED = new Set(["ok", "partial"]);

export function passes(explanation, timeline) {
  const { rewrites, critical_path_s: path } = explanation;
  const names = [...new Set([...explanation.passes, ...rewrites.map((r) => r.pass)])];
  const on = lit(explanation);
  return html`<p class="lead">${expected(path, explanation, timeline)}</p>
    ${names.length ? nothing : html`<p class="empty">This query ran without passes: both graphs are the same.</p>`}
    ${names.map((name) => one(name, rewrites.filter((r) => r.pass === name), explanation, on))}`;
}

function expected(path, explanation, timeline) {
  if (explanation.grows.length) {
    return html`How long it would take could not be known before it ran: ${explanation.grows.join(", ")} adds to it as it
      goes.`;
  }
  if (path.e_graph === null || path.p_graph === null) {
    const missing = Object.entries(explanation.times).filter(([, from]) => from === UNKNOWN);
    return `How long it would take was not known yet: the times of ${
      missing.map(([name]) => name).join(", ") || "an engine"} are learned as it works.`;
  }
  return html`The longest path was expected to take <b>${seconds(path.p_graph)}</b> as the
      template has it and <b>${seconds(path.e_graph)}</b> after the passes, by the profile
      <code>${explanation.profile}</code> as it was when the query began.${
        timeline && ENDED.has(timeline.state) ? html` It took <b>${seconds(timeline.end_s)}</b>.` : ""}`;
}

function one(name, decided, explanation, on) {
  const done = decided.filter((r) => r.applied).length;
  const told = done ? plural(done, "change") : decided.length ? "declined" : "nothing to do";
  return html`<details class="pass ${done ? "did" : ""}" ?open=${done > 0}>
    <summary>${words(name)} <small>${told}</small></summary>
    <ul>${decided.map((r) => row(r, explanation, on))}</ul>
  </details>`;
}

function row(rewrite, explanation, on) {
  const graph = explanation.p_graph.primitives.some((p) => p.id === rewrite.primitive) ? "p" : "e";
  const what = { graph, id: rewrite.primitive };
  const isLit = on?.[graph].has(rewrite.primitive);
  return html`<li class=${isLit ? "lit" : ""} @mouseenter=${() => point(what)}
      @mouseleave=${() => point(null)}>
    <span class="sign" aria-hidden="true">${rewrite.applied ? "+" : "–"}</span>
    <span class="unseen">${rewrite.applied ? "changed" : "left alone"}</span>
    <button class="name" @focus=${() => point(what)} @blur=${() => point(null)}
      @click=${() => hold(what)}>${rewrite.primitive}</button>
    <span>${rewrite.reason}</span></li>`;
}
