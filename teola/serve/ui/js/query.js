// One query: its answer, where the time went, its graphs, and what the passes did.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { cancel, closed, opened } from "./live.js";
import { answer } from "./answer.js";
import { ago, moment, plural, seconds } from "./format.js";
import { graphs } from "./graphs.js";
import { inspector } from "./inspector.js";
import { legend } from "./ops.js";
import { passes } from "./passes.js";
import { letGo, point } from "./pointing.js";
import { link } from "./router.js";
import { changed, say, state } from "./store.js";
import { summary } from "./summary.js";
import { timeline } from "./timeline.js";
import { afterTimeline } from "./zoom.js";

const SIGNS = { running: "●", ok: "✓", partial: "◐", cancelled: "■" };

export const badge = (name) => html`<span class="badge is-${name}"><span
  aria-hidden="true">${SIGNS[name] ?? "✕"}</span> ${name}</span>`;

function draw() {
  const query = opened(state.route.id);
  if (query.missing) {
    return html`<div class="card narrow"><h1>This query is not here</h1><p>${query.missing}</p>
      <p><a href="#/queries">All queries</a></p></div>`;
  }
  return html`${head(query)}
    <section class="card" aria-labelledby="h-answer"><h2 id="h-answer">Answer</h2>${answer(query)}</section>
    <section class="card" aria-labelledby="h-time">
      <h2 id="h-time">Where the time went</h2>
      ${query.timeline
        ? html`${summary(query.timeline)} ${timeline(query)}`
        : waiting(query, "The timeline begins when the query is admitted.")}
    </section>
    <section class="card" aria-labelledby="h-graphs">
      <h2 id="h-graphs">Graphs</h2>
      ${query.explanation
        ? html`${legend(query.explanation.e_graph.primitives.map((p) => p.op))} ${graphs(query)}`
        : waiting(query, "The graph is made when the documents have been read.")}
    </section>
    ${query.explanation
      ? html`<section class="card" aria-labelledby="h-passes"><h2 id="h-passes">What the passes did</h2>
          ${passes(query.explanation)}</section>`
      : nothing}
    ${query.explanation ? inspector(query) : nothing}`;
}

const waiting = (query, text) => html`<p class="wait empty">${
  query.state === "running" || !query.looked ? text : "It ended before there was one."
}</p>`;

function head(query) {
  const latency = query.timeline?.end_s ?? query.latency_s;
  return html`<div class="head">
    <p class="crumbs"><a href="#/queries">Queries</a> <span aria-hidden="true">/</span>
      <code title=${query.id}>${query.id.slice(0, 12)}</code>
      <button class="plain" title="Copy the id" @click=${() => copy(query.id)}>copy</button></p>
    <div class="row">
      <h1>${query.app || "…"}</h1>
      ${badge(query.state)}
      <span class="facts"><b class="digits">${seconds(latency)}</b>
        <span title=${moment(query.created)}>${ago(query.created)}</span>
        <span>${query.mode}</span>
        ${query.result ? html`<span>${plural(query.result.primitives, "primitive")}</span>` : nothing}</span>
      <span class="spring"></span>
      ${query.state === "running"
        ? html`<button class="danger" ?disabled=${query.cancelling}
            @click=${() => cancel(query)}>${query.cancelling ? "Cancelling …" : "Cancel"}</button>`
        : query.app
          ? html`<a class="button" href=${link("ask", { app: query.app })}>Ask again</a>`
          : nothing}
    </div>
    ${query.question ? html`<p class="question">${query.question}</p>` : nothing}
  </div>`;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("copied");
  } catch {
    say("the browser does not let this page copy; select the id instead");
  }
}

function onEscape(event) {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) letGo();
}

let clock = 0;
let looking = "";
export const query = {
  draw,
  drawn: afterTimeline,
  arrive() {
    looking = state.route.id;
    addEventListener("keydown", onEscape);
    clock = setInterval(changed, 10_000); // "12 s ago"
    point(null);
  },
  leave() {
    removeEventListener("keydown", onEscape);
    clearInterval(clock);
    closed(looking);
  },
};
