// The answer as it comes, its sources, and every other output. All of it is text, never markup.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { plural, seconds, shorter, visible } from "./format.js";
import { alive } from "./live.js";
import { DRAWN, isTable, table } from "./rows.js";

const isHit = (one) => typeof one?.text === "string" && "document" in one;

// The output that is the answer: "answer", or the only one.
function parts(outputs) {
  const names = Object.keys(outputs);
  const main = names.includes("answer") ? "answer" : names.length === 1 ? names[0] : null;
  const hits = names.filter((name) => Array.isArray(outputs[name]) && outputs[name].some(isHit));
  const drawn = isTable(outputs) ? DRAWN : [];
  const rest = names.filter((name) => name !== main && !hits.includes(name) && !drawn.includes(name));
  return { main: hits.includes(main) ? null : main, hits, rest };
}

const asText = (value) => visible(typeof value === "string" ? value : JSON.stringify(value, null, 2));

export function answer(query) {
  const { result } = query;
  if (!result?.outputs) return html`${steps(query)} ${streaming(query)} ${failure(query)}`;
  const { main, hits, rest } = parts(result.outputs);
  const text = main && result.outputs[main] !== null ? asText(result.outputs[main]) : "";
  return html`
    ${steps(query)}
    ${text
      ? html`<div class="answer" data-testid="answer" dir="auto">${text}</div>`
      : query.error
        ? nothing
        : html`<p class="empty">Nothing was found to answer from: the application gave no text.</p>`}
    ${result.missing
      ? html`<p class="note">Without ${result.missing
        .map((name) => `${name} (${result.reasons?.[name] ?? "it failed"})`).join(", ")}.</p>`
      : nothing}
    ${result.objective?.stated
      ? html`<p class="note" data-testid="objective">Wanted within ${seconds(result.objective.finish_by_s)}, ${
        result.objective.met ? "and in time" : "and late"}.</p>`
      : nothing}
    ${(result.notices ?? []).map((told) => html`<p class="note">${told}</p>`)}
    ${failure(query)}
    ${isTable(result.outputs) ? table(query, result.outputs) : nothing}
    ${hits.map((name) => sources(name, result.outputs[name]))}
    ${rest.map((name) => html`<details><summary>${name}</summary>
      <pre tabindex="0" aria-label=${name} dir="auto">${asText(result.outputs[name])}</pre></details>`)}`;
}

const DOING = { started: "calls", finished: "called", failed: "could not call" };

// What agents have done so far: the calls of their tools, in the order in which they began.
function steps(query) {
  if (!query.steps.size) return nothing;
  const all = [...query.steps.values()];
  const running = all.filter(({ state }) => state === "started").length;
  return html`<details class="steps" ?open=${alive(query)}><summary>steps
      <small>${plural(all.length, "call")}${running ? `, ${running} running` : ""}</small></summary>
    <ol tabindex="0" aria-label="steps">
      ${all.map(({ agent, tool, args, state, result, seconds: took }) => html`<li class=${state}>
        <span>${agent} ${DOING[state] ?? state} <b>${tool}</b> <code dir="auto">${shorter(visible(JSON.stringify(args)), 200)}</code>
          ${state === "started" ? nothing : html`<small class="digits">${seconds(took)}</small>`}</span>
        ${result ? html`<p dir="auto">${shorter(visible(result), 400)}</p>` : nothing}</li>`)}
    </ol>
  </details>`;
}

function streaming({ state, text }) {
  if (state === "waiting" && !text) return html`<p class="empty">It goes on when people have answered.</p>`;
  if (text) {
    return html`<div class="answer ${state === "running" ? "coming" : ""}" data-testid="answer" dir="auto"
      aria-busy=${state === "running"}>${visible(text)}</div>`;
  }
  return state === "running" ? html`<div class="answer coming"></div>` : nothing;
}

// Why there is no answer; that somebody cancelled it is no error.
function failure({ state, error }) {
  if (state === "cancelled") return html`<p class="note">The query was cancelled before it had an answer.</p>`;
  return error ? html`<p class="error" role="alert">${visible(error)}</p>` : nothing;
}

function sources(name, hits) {
  return html`<details class="sources" open><summary>${name}
      <small>${plural(hits.length, "passage")}</small></summary>
    <ol>
      ${hits.map((hit) => html`<li><b dir="auto">${visible(hit.citation ?? hit.document)}</b> <small class="digits">${
        Number(hit.score).toFixed(2)
      }</small><p dir="auto">${shorter(visible(hit.text), 400)}</p></li>`)}
    </ol>
  </details>`;
}
