// A query over tables: its plan, how far each call is, what it costs, first rows, and rows that failed.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { count, plural, shorter, visible } from "./format.js";
import { alive } from "./live.js";
import { rowsOf } from "./rows.js";

export const APP = "query-tables";
export const isTables = (query) => query.app === APP;

const INSTRUCTION = 80; // characters
const NUMBERS = ["Rows", "Distinct", "Kept before", "Failed", "Prompt tokens", "Cached", "Cost"];
const table = (query) => query.result?.outputs?.table ?? null;

export function tables(query) {
  return html`
    <section class="card" aria-labelledby="h-plan"><h2 id="h-plan">Plan</h2>${plan(query)}</section>
    <section class="card" aria-labelledby="h-progress"><h2 id="h-progress">Progress</h2>${progress(query)}</section>
    <section class="card" aria-labelledby="h-rows"><h2 id="h-rows">${
      alive(query) ? "First rows" : "Rows"}</h2>${rows(query)} ${failed(query)}</section>`;
}

// --- plan ----------------------------------------------------------------------------------------

function plan(query) {
  const { plan: known } = query;
  if (!known) {
    return html`<p class="wait empty">${alive(query)
      ? "The plan is made when its tables are free." : "The server that made it is gone."}</p>`;
  }
  const calls = known.calls.length
    ? html`<ol class="calls-of-plan">${known.calls.map((call) => html`<li dir="auto"><b>${
      visible(call.instruction)}</b> <small>asked of <code>${call.model}</code></small></li>`)}</ol>`
    : html`<p class="empty">It asks no language model.</p>`;
  return html`${calls}
    <ul class="rewrites" data-testid="rewrites">${known.rewrites.map((one) => html`<li dir="auto"><b>${one.rule}</b>
      ${visible(one.what)}: ${visible(one.reason)}</li>`)}</ul>`;
}

// --- progress ------------------------------------------------------------------------------------

function progress(query) {
  const stages = stagesOf(query);
  if (!stages.length) {
    return html`<p class="wait empty">${alive(query) ? "Nothing has been asked yet." : "Nothing was asked."}</p>`;
  }
  return html`<div class="table scroll" tabindex="0" role="group" aria-label="progress">
    <table data-testid="stages"><thead><tr><th scope="col">Call</th><th scope="col">Asked</th>
      ${NUMBERS.map((name) => html`<th scope="col" class="digits">${name}</th>`)}</tr></thead>
    <tbody>${stages.map(stage)}</tbody></table></div>
    ${total(query, stages)}`;
}

// As events told them; of a query that ran on another server as its result does.
function stagesOf(query) {
  if (query.stages.size) return [...query.stages.values()];
  return (table(query)?.stages ?? []).map((one) => ({ ...one, ended: one.asked, to_ask: one.asked }));
}

const stage = (one) => html`<tr><td dir="auto">${shorter(visible(one.instruction), INSTRUCTION)}</td>
  <td class="asked"><progress max=${one.to_ask || 1} value=${one.to_ask ? one.ended : 1}
    aria-label=${`${one.ended} of ${one.to_ask}`}></progress>
    <span class="digits">${count(one.ended)} of ${count(one.to_ask)}</span></td>
  ${["rows", "distinct", "answered_before", "failed", "prompt_tokens"].map((name) => html`<td
    class="digits ${name === "failed" && one.failed ? "bad" : ""}">${one[name] === undefined ? "–" : count(one[name])}</td>`)}
  <td class="digits">${one.prompt_tokens ? `${Math.round((100 * one.cached_tokens) / one.prompt_tokens)} %` : "–"}</td>
  <td class="digits">${money(one.cost)}</td></tr>`;

const money = (cost) => (typeof cost === "number" ? cost.toPrecision(3) : "–");

function total(query, stages) {
  const costs = stages.map((one) => one.cost).filter((one) => typeof one === "number");
  const cost = query.result?.usage?.cost ?? (costs.length ? costs.reduce((sum, one) => sum + one, 0) : null);
  const found = table(query);
  return html`<p data-testid="total"><small>${cost === null ? "No prices are configured." : `Cost so far: ${money(cost)}.`}
    ${found ? `${plural(found.asked, "prompt")} sent, ${count(found.answered_before)} answered before.` : nothing}</small></p>
    ${found?.reason ? html`<p class="note" dir="auto">${visible(found.reason)}</p>` : nothing}`;
}

// --- rows ----------------------------------------------------------------------------------------

function rows(query) {
  const found = table(query);
  const columns = (found?.columns ?? query.plan?.columns ?? []).map((one) => one.name);
  const shown = found?.rows ?? query.rows;
  if (query.error) {
    return query.state === "cancelled"
      ? html`<p class="note">The query was cancelled. What was answered is kept, and not asked again.</p>`
      : html`<p class="error" role="alert" dir="auto">${visible(query.error)}</p>`;
  }
  if (!shown.length) {
    return html`<p class="empty">${alive(query) ? "No row is there yet." : "The result has no rows."}</p>`;
  }
  return rowsOf(query, { columns, rows: shown });
}

function failed(query) {
  const errors = table(query)?.errors ?? [];
  if (!errors.length) return nothing;
  return html`<details class="attempts" open><summary>failed rows <small>${
    plural(errors.reduce((sum, one) => sum + one.rows, 0), "row")}</small></summary>
    <ol data-testid="failed">${errors.map((one) => html`<li><span>${plural(one.rows, "row")}, such as
      <code dir="auto">${shorter(visible(one.example), 200)}</code></span><p dir="auto">${visible(one.error)}</p></li>`)}</ol></details>`;
}
