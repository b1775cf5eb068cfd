// One query: its answer, where the time went, its graphs, and what the passes did.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { alive, answered, cancel, closed, opened, reopened } from "./live.js";
import { answer } from "./answer.js";
import { asked } from "./asked.js";
import { asks } from "./asks.js";
import { calls, hasCalls } from "./calls.js";
import "./clock.js";
import { ago, count, moment, plural, seconds } from "./format.js";
import { counted, graphs } from "./graphs.js";
import { follow, inspector } from "./inspector.js";
import { legend } from "./ops.js";
import { afterGraphs, resetPanes } from "./panes.js";
import { grown, hasParts, parts, resetParts } from "./parts.js";
import { passes } from "./passes.js";
import { letGo, point } from "./pointing.js";
import { link } from "./router.js";
import { changed, say, state } from "./store.js";
import { summary } from "./summary.js";
import { isTables, tables } from "./tables.js";
import { timeline } from "./timeline.js";
import { afterTimeline, resetZoom } from "./zoom.js";

const SIGNS = { running: "●", waiting: "◔", ok: "✓", partial: "◐", cancelled: "■", lost: "?" };

export const badge = (name) => html`<span class="badge is-${name}"><span
  aria-hidden="true">${SIGNS[name] ?? "✕"}</span> ${name}</span>`;

function draw() {
  const query = opened(state.route.id);
  if (query.missing) {
    return html`<div class="card narrow"><h1>This query is not here</h1><p>${query.missing}</p>
      <p><a href="#/queries">All queries</a></p></div>`;
  }
  return html`${head(query)}
    ${query.asks.length
      ? html`<section class="card" aria-labelledby="h-asks"><h2 id="h-asks">Asked of people</h2>
          ${asks(query.id, query.asks, (told) => answered(query, told))}</section>`
      : nothing}
    ${isTables(query) ? tables(query) : ofApplication(query)}`;
}

// What is shown of a query of an application.
function ofApplication(query) {
  return html`<section class="card" aria-labelledby="h-answer"><h2 id="h-answer">Answer</h2>${answer(query)}</section>
    <section class="card" aria-labelledby="h-time">
      <h2 id="h-time">Where the time went</h2>
      ${query.timeline
        ? html`${summary(query)} ${timeline(query)}`
        : waiting(query, "The timeline begins when the query is admitted.")}
    </section>
    ${hasParts(query)
      ? html`<section class="card" aria-labelledby="h-parts"><h2 id="h-parts">What it grew</h2>
          ${parts(query)}</section>`
      : nothing}
    ${query.explanation && hasCalls(query)
      ? html`<section class="card" aria-labelledby="h-calls"><h2 id="h-calls">Where LLM calls went, and why</h2>
          ${calls(query)}</section>`
      : nothing}
    <section class="card" aria-labelledby="h-graphs">
      <h2 id="h-graphs">Graphs</h2>
      ${query.explanation
        ? html`${legend(query.explanation.e_graph.primitives.map((p) => p.op))} ${graphs(query)}`
        : waiting(query, "The graph is made when the documents have been read.")}
    </section>
    ${query.explanation
      ? html`<section class="card" aria-labelledby="h-passes"><h2 id="h-passes">What the passes did</h2>
          ${passes(query.explanation, query.timeline)}</section>`
      : nothing}
    ${query.explanation ? inspector(query) : nothing}`;
}

const waiting = (query, text) => html`<p class="wait empty">${
  alive(query) || !query.looked ? text : "It ended before there was one."
}</p>`;

const took = ({ state, since, timeline, latency_s: latency }) =>
  state === "running" && since !== null
    ? html`<running-clock class="digits" .since=${since}></running-clock>`
    : html`<b class="digits">${seconds(latency ?? timeline?.end_s)}</b>`;

const primitives = (query) => !isTables(query) && inGraph(query);

const inGraph = (query) =>
  query.explanation && query.timeline
    ? `${counted(query)}${hasParts(query) ? `, ${count(grown(query))} more in parts` : ""}`
    : query.result?.primitives > 0 && `${plural(query.result.primitives, "primitive")} on engines`;

// Whether the page still hears of it.
function contact({ trying, uncancelled }) {
  const lost = trying
    ? `The connection was lost: trying again, ${trying.now} of ${trying.most}.`
    : uncancelled ? `It was not cancelled: ${uncancelled}.` : "";
  return lost ? html`<p class="note" role="status">${lost}</p>` : nothing;
}

function head(query) {
  return html`<div class="head">
    <p class="crumbs"><a href="#/queries">Queries</a> <span aria-hidden="true">/</span>
      <code title=${query.id}>${query.id.slice(0, 12)}</code>
      <button class="plain" title="Copy the id" @click=${() => copy(query.id)}>copy</button></p>
    <div class="row">
      <h1>${query.app || "…"}</h1>
      ${badge(query.state)}
      <span class="facts">${took(query)}
        <span title=${moment(query.created)}>${ago(query.created)}</span>
        <span>${query.mode}</span>
        <span class="count">${primitives(query) || nothing}</span></span>
      <span class="spring"></span>
      ${actions(query)}
    </div>
    ${contact(query)} ${asked(query)}
  </div>`;
}

function actions(query) {
  if (alive(query)) {
    return html`<button class="danger" ?disabled=${query.cancelling}
      @click=${() => cancel(query)}>${query.cancelling ? "Cancelling …" : "Cancel"}</button>`;
  }
  const again = query.asked ? query.id : "";
  return html`${query.state === "lost"
    ? html`<button @click=${() => reopened(query)}>Look again</button>`
    : nothing}
    ${query.app && !isTables(query)
      ? html`<a class="button" href=${link("ask", { app: query.app, again })}>Ask again</a>`
      : nothing}`;
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
  drawn() {
    afterTimeline();
    afterGraphs();
  },
  arrive() {
    looking = state.route.id;
    resetZoom();
    resetPanes();
    resetParts();
    addEventListener("keydown", onEscape);
    addEventListener("pointermove", follow);
    clock = setInterval(changed, 10_000); // "12 s ago"
    point(null);
  },
  leave() {
    removeEventListener("keydown", onEscape);
    removeEventListener("pointermove", follow);
    clearInterval(clock);
    closed(looking);
  },
};
