// What a database gave: rows that can be sorted, copied and saved, the SQL with its tables marked, the
// attempts as a timeline, and a chart that was chosen as data. All of it is text, never markup.
import { html, nothing, svg } from "../vendor/lit-html/lit-html.js";
import { begin } from "./live.js";
import { count, plural, seconds, shorter, visible } from "./format.js";
import { go, linkTo } from "./router.js";
import { changed, say } from "./store.js";

const MOST = 500; // rows that are drawn
const LONG = 300; // characters of a value that are drawn
export const DRAWN = ["sql", "columns", "rows", "truncated", "explanation", "tables", "answerable", "attempts", "calls", "chart"];

// Query -> {column, down}: what its rows are sorted by.
const sorted = new Map();

export const isTable = (outputs) =>
  Array.isArray(outputs.columns) && Array.isArray(outputs.rows) && typeof outputs.sql === "string";

export function table(query, outputs) {
  const { columns, rows, truncated, explanation, attempts, chart } = outputs;
  return html`
    ${explanation ? html`<p class="note" dir="auto">${visible(explanation)}</p>` : nothing}
    ${columns.length ? html`${rowsOf(query, outputs)}` : nothing}
    ${truncated ? html`<p class="note">There are more rows than the ${count(rows.length)} that were read.</p>` : nothing}
    ${chart ? html`<figure class="chart" data-testid="chart">${drawing(chart, columns, rows)}</figure>` : nothing}
    ${outputs.sql ? html`<details class="sql" open><summary>SQL</summary>
      <pre tabindex="0" aria-label="SQL" data-testid="sql">${marked(visible(outputs.sql), outputs.tables)}</pre>
      ${keeper(query, outputs)}</details>` : nothing}
    ${attempts?.length ? timelineOf(attempts) : nothing}`;
}

// --- rows --------------------------------------------------------------------------------------

export function rowsOf(query, { columns, rows }) {
  const by = sorted.get(query.id);
  const shown = by ? [...rows].sort(order(by)) : rows;
  return html`<div class="table scroll" tabindex="0" role="group" aria-label="rows">
    <table data-testid="rows"><thead><tr>${columns.map((name, i) => html`<th scope="col"
        aria-sort=${by?.column === i ? (by.down ? "descending" : "ascending") : "none"}>
        <button class="plain" @click=${() => sortBy(query, i)}>${shorter(visible(String(name)), 80)}${
          by?.column === i ? (by.down ? " ↓" : " ↑") : ""}</button></th>`)}</tr></thead>
      <tbody>${shown.slice(0, MOST).map((row) => html`<tr>${row.map((value) => html`<td dir="auto"
        class=${typeof value === "number" ? "digits" : ""}>${cell(value)}</td>`)}</tr>`)}</tbody></table></div>
    <p class="row"><small>${plural(rows.length, "row")}${rows.length > MOST ? `, of which ${MOST} are drawn` : ""}</small>
      <button class="plain" @click=${() => copy(columns, shown)}>Copy</button>
      <button class="plain" @click=${() => save(columns, shown)}>CSV</button></p>`;
}

function sortBy(query, column) {
  const by = sorted.get(query.id);
  if (by?.column === column && by.down) sorted.delete(query.id);
  else sorted.set(query.id, { column, down: by?.column === column });
  changed();
}

// Numbers before texts, and nothing last.
function order({ column, down }) {
  const rank = (value) => (value === null ? 2 : typeof value === "number" ? 0 : 1);
  return (a, b) => {
    const [x, y] = [a[column], b[column]];
    if (rank(x) !== rank(y)) return rank(x) - rank(y);
    const less = typeof x === "number" ? x - y : String(x).localeCompare(String(y));
    return down ? -less : less;
  };
}

const plain = (value) =>
  value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
const cell = (value) => (value === null ? html`<i>null</i>` : shorter(visible(plain(value)), LONG));

async function copy(columns, rows) {
  const line = (values) => values.map((value) => plain(value).replace(/[\t\r\n]+/g, " ")).join("\t");
  try {
    await navigator.clipboard.writeText([columns, ...rows].map(line).join("\n"));
    say("Copied.");
  } catch {
    say("The browser does not let this page copy.");
  }
}

// A text that a spreadsheet would take for a formula begins with an apostrophe.
export function csvOf(columns, rows) {
  const field = (value) => {
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : plain(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(field).join(",")).join("\r\n");
}

function save(columns, rows) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csvOf(columns, rows)], { type: "text/csv" }));
  link.download = "rows.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// --- SQL ---------------------------------------------------------------------------------------

// The statement with the tables that it reads marked.
function marked(sql, tables) {
  const names = (tables ?? []).flatMap((name) => [name, name.split(".").at(-1)]);
  if (!names.length) return sql;
  const escaped = [...new Set(names)].sort((a, b) => b.length - a.length)
    .map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const pieces = sql.split(new RegExp(`(?<![\\w])(${escaped.join("|")})(?![\\w])`, "giu"));
  return pieces.map((piece, i) => (i % 2 ? html`<mark>${piece}</mark>` : piece));
}

// A button by which whoever asked says that this answer is right.
function keeper(query, { answerable, sql }) {
  const given = query.asked?.inputs;
  if (!answerable || !given?.question || given.keep) return nothing;
  return html`<button class="plain" data-testid="keep" @click=${() => keep(query, given, sql)}>Keep this</button>
    <small>as an example for questions like it</small>`;
}

async function keep(query, { question, database }, sql) {
  const inputs = { question, sql, keep: true, ...(database ? { database } : {}) };
  const body = { inputs, overrides: {}, mode: "stream" };
  try {
    const asked = { inputs, left_out: [], overrides: {}, passes: null };
    go(linkTo(await begin(query.app, JSON.stringify(body), asked)));
  } catch (failure) {
    say(failure.message);
  }
}

// --- attempts ----------------------------------------------------------------------------------

function timelineOf(attempts) {
  const end = Math.max(...attempts.map((one) => one.ended_s), 0.001);
  const at = (s) => `${(100 * s) / end}%`;
  return html`<details class="attempts"><summary>attempts <small>${plural(attempts.length, "statement")}</small></summary>
    <ol data-testid="attempts">${attempts.map((one) => html`<li class=${one.outcome === "ok" ? "" : "failed"}>
      <span>candidate ${one.candidate}, turn ${one.turn}: <b>${one.outcome}</b>${one.chosen ? " (chosen)" : ""}
        <small class="digits">${seconds(one.ended_s - one.began_s)}</small></span>
      <svg width="100%" height="8" aria-hidden="true"><rect x=${at(one.began_s)} y="0" height="8"
        width=${at(one.ended_s - one.began_s)} rx="3" class="bar"/></svg>
      ${one.sql ? html`<pre tabindex="0" aria-label="statement">${visible(one.sql)}</pre>` : nothing}
      ${one.error ? html`<p dir="auto">${visible(one.error)}</p>` : nothing}</li>`)}</ol></details>`;
}

// --- chart -------------------------------------------------------------------------------------

const WIDTH = 640;
const HEIGHT = 240;
const LEFT = 60;
const BELOW = 34;

function drawing({ kind, x, y, series }, columns, rows) {
  const [ix, iy, is] = [x, y, series].map((name) => columns.indexOf(name));
  const points = rows.map((row) => ({ x: row[ix], y: row[iy], s: is < 0 ? "" : plain(row[is]) }))
    .filter((one) => typeof one.y === "number" && Number.isFinite(one.y) && one.x !== null);
  if (points.length < 2) return nothing;
  const [low, high] = [Math.min(0, ...points.map((p) => p.y)), Math.max(0, ...points.map((p) => p.y))];
  const upright = (value) => HEIGHT - BELOW - ((value - low) / (high - low || 1)) * (HEIGHT - BELOW - 12);
  const numeric = kind === "point";
  const places = numeric ? [] : [...new Set(points.map((p) => plain(p.x)))];
  if (kind === "line") places.sort();
  const xs = points.map((p) => Number(p.x));
  const [first, last] = [Math.min(...xs), Math.max(...xs)];
  const step = (WIDTH - LEFT - 10) / Math.max(1, places.length);
  const across = (value) => (numeric
    ? LEFT + ((Number(value) - first) / (last - first || 1)) * (WIDTH - LEFT - 16)
    : LEFT + (places.indexOf(plain(value)) + 0.5) * step);
  const names = [...new Set(points.map((p) => p.s))];
  const hue = (s) => `series-${names.indexOf(s) % 8}`;
  const shapes = {
    bar: () => points.map((p) => svg`<rect class=${hue(p.s)} x=${across(p.x) - step * 0.4 + (names.indexOf(p.s) * step * 0.8) / names.length}
      y=${Math.min(upright(p.y), upright(0))} width=${(step * 0.8) / names.length} height=${Math.abs(upright(p.y) - upright(0))}/>`),
    line: () => names.map((s) => svg`<polyline class=${hue(s)} fill="none" points=${points.filter((p) => p.s === s)
      .sort((a, b) => across(a.x) - across(b.x)).map((p) => `${across(p.x)},${upright(p.y)}`).join(" ")}/>`),
    point: () => points.map((p) => svg`<circle class=${hue(p.s)} cx=${across(p.x)} cy=${upright(p.y)} r="3"/>`),
  };
  if (!(kind in shapes)) return nothing;
  const some = places.filter((_, i) => i % Math.ceil(places.length / 8) === 0);
  return html`<figcaption>${shorter(visible(y), 60)} by ${shorter(visible(x), 60)}${
    series ? `, ${shorter(visible(series), 60)}` : ""}</figcaption>
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="chart, ${kind}">
      <line x1=${LEFT} x2=${WIDTH} y1=${upright(0)} y2=${upright(0)} class="axis"/>
      ${[low, high].map((value) => svg`<text x=${LEFT - 6} y=${upright(value) + 4} text-anchor="end">${Number(value.toPrecision(4)).toLocaleString("en")}</text>`)}
      ${numeric
        ? [first, last].map((value) => svg`<text x=${across(value)} y=${HEIGHT - 14} text-anchor="middle">${Number(value.toPrecision(4))}</text>`)
        : some.map((name) => svg`<text x=${across(name)} y=${HEIGHT - 14} text-anchor="middle">${shorter(visible(name), 12)}</text>`)}
      ${shapes[kind]()}
    </svg>`;
}
