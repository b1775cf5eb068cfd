// The timeline: a lane for each instance, waiting lighter than running, what shared a batch framed,
// the critical path marked. Lane names stay where they are while the rest scrolls.
import { html, nothing, svg } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { seconds, shorter } from "./format.js";
import { cellsOf, GAP, lanesOf, PAD, ROW, ticks } from "./lanes.js";
import { classOf, words } from "./ops.js";
import { hold, isHeld, lit, point, shown } from "./pointing.js";
import { all, closer, further, onKey, view, wheel } from "./zoom.js";

const RULER = 26;
const NAMES = 104;
const LETTER = 6.4; // px of a character in a bar
const SAME = 5e-5; // s

export function timeline({ timeline: data, explanation, state }) {
  const end = Math.max(data.end_s, 1e-6);
  const lanes = lanesOf(data.spans);
  if (!lanes.length) return html`<p class="wait empty">${
    state === "running" ? "Nothing has run yet." : "It ended before anything ran."}</p>`;
  const cells = cellsOf(lanes);
  const width = Math.round(view.width * view.zoom);
  const scene = {
    data, end, lanes, cells, width,
    height: RULER + lanes.at(-1).top + lanes.at(-1).height,
    scale: (t) => (t / end) * (width - 2),
    on: lit(explanation),
    critical: new Set(data.critical_spans),
    tab: cells.some((cell) => cell.i === view.at) ? view.at : cells[0].i,
  };
  return html`${controls()}
    <div class="timeline" @keydown=${(event) => onKey(event, cells, lanes)}>
      ${names(scene)}
      <div class="scroll" tabindex="0" role="region" aria-label="Timeline, scrolls" @wheel=${wheel}>
        <svg class="lanes" width=${width} height=${scene.height} role="listbox"
          aria-label="Timeline: ${cells.length} spans in ${lanes.length} lanes">
          ${backgrounds(scene)} ${ruler(scene)} ${links(scene)} ${waits(scene)}
          ${repeat(cells, (cell) => cell.key, (cell) => bar(cell, scene))}
        </svg>
      </div>
    </div>
    <p class="legend notes"><span><i class="swatch critical"></i> on the critical path</span>
      <span><i class="swatch queued"></i> ready, waiting for an instance</span>
      <span><i class="swatch batch"></i> one batch</span>
      <span class="hint">Point at a primitive, or move to one with <kbd>Tab</kbd> and the arrow keys, to see what
        it did and whom it waited for; click to hold on to it.</span></p>`;
}

function controls() {
  const button = (label, text, act) => html`<button class="plain" aria-label=${label} title=${label}
    @click=${act}>${text}</button>`;
  return html`<div class="controls" role="group" aria-label="Zoom of the timeline">
    ${button("Further", "−", further)} ${button("Closer", "+", closer)} <button class="plain" title="All of it" @click=${all}>fit</button>
    <small class="digits">${view.zoom.toFixed(1)}×</small>
  </div>`;
}

const names = ({ lanes, height }) => html`<svg class="lane-names" width=${NAMES} height=${height}
    role="img" aria-label="Lanes: ${lanes.map((lane) => lane.names.join(" ").trim()).join(", ")}">
  ${lanes.map((lane) => svg`<text y=${RULER + lane.top + PAD + 9}>${shorter(lane.names[0], 13)}
    <tspan class="dim" x="0" dy="14">${lane.names[1]}</tspan></text>`)}
</svg>`;

const ruler = ({ end, width, height, scale }) => svg`<g class="ruler" aria-hidden="true">
  ${ticks(end, width).map((t) => svg`<line x1=${scale(t)} x2=${scale(t)} y1=${RULER - 6} y2=${height}></line>
    <text x=${scale(t) + 4} y=${RULER - 10}>${seconds(t)}</text>`)}
</g>`;

const rowTop = (lane, row) => RULER + lane.top + PAD + row * (ROW + GAP);

const backgrounds = ({ lanes, width, scale }) => svg`<g aria-hidden="true">
  ${lanes.map((lane, k) => svg`
    <rect class="lane ${k % 2 ? "odd" : ""}" x="0" y=${RULER + lane.top} width=${width} height=${lane.height}></rect>
    ${lane.groups.map((group) => svg`<rect class="batch" rx="4" x=${scale(group.start) - 2}
      y=${rowTop(lane, group.row) - 2} width=${Math.max(2, scale(group.end) - scale(group.start)) + 4}
      height=${group.rows * (ROW + GAP) - GAP + 4}></rect>`)}`)}
</g>`;

const lightOf = (span, on) => (on ? (on.e.has(span.primitive) ? "lit" : "dim") : "");

const whatOf = (span, i) => ({ graph: "e", id: span.primitive, span: i });

// [left, width] of the time in which a span waited, in px; the width is 0 where nobody would see it.
function waitOf(span, scale) {
  const [from, to] = [scale(span.queued), scale(span.start)];
  return [from, to - from > 0.5 ? to - from : 0];
}

// Waiting lies below everything that ran, whose names it would strike through.
const waits = ({ cells, scale, on }) => svg`<g aria-hidden="true">
  ${repeat(cells, (cell) => cell.key, ({ span, i, row, lane }) => {
    const [x, w] = waitOf(span, scale);
    const what = whatOf(span, i);
    return w ? svg`<rect class="wait-bar op-${classOf(span.op)} ${lightOf(span, on)}" x=${x} width=${w} height="6"
      y=${rowTop(lane, row) + ROW / 2 - 3} @mouseenter=${() => point(what)} @mouseleave=${() => point(null)}
      @click=${() => hold(what)}></rect>` : nothing;
  })}
</g>`;

function bar({ span, i, row, lane }, { data, scale, on, critical, tab }) {
  const [x, y] = [scale(span.start), rowTop(lane, row)];
  const w = Math.max(2, scale(span.end) - x);
  const fits = Math.floor((w - 10) / LETTER);
  const kind = `op-${classOf(span.op)} is-${span.state} ${critical.has(i) ? "critical" : ""} ${lightOf(span, on)}`;
  const what = whatOf(span, i);
  const [from, waited] = waitOf(span, scale);
  return svg`<g class="span ${kind}" role="option" tabindex=${i === tab ? 0 : -1} data-span=${i}
      data-primitive=${span.primitive} aria-selected=${isHeld("e", span.primitive)}
      aria-label=${told(span, lane, critical.has(i), data)}
      @mouseenter=${() => point(what)} @mouseleave=${() => point(null)}
      @focus=${() => { view.at = i; point(what); }} @blur=${() => point(null)} @click=${() => hold(what)}>
    ${span.state === "queued"
      ? svg`<rect class="frame" x=${from} y=${y + ROW / 2 - 3} width=${waited} height="6"></rect>`
      : svg`<rect class="bar" rx="3" x=${x} y=${y} width=${w} height=${ROW}></rect>`}
    ${fits > 2 ? svg`<text x=${x + 6} y=${y + 14}>${shorter(span.primitive, fits)}</text>` : nothing}
  </g>`;
}

function told(span, lane, isCritical, { spans }) {
  const cause = spans[span.waited_for];
  const waited = span.start - span.queued > SAME ? `, after waiting ${seconds(span.start - span.queued)}` : "";
  return `${span.primitive}, ${words(span.op)}, ${lane.names.join(" ").trim()}, ${span.state}, at ${
    seconds(span.start)} for ${seconds(span.end - span.start)}${waited}${
    cause ? `, became ready with ${cause.primitive}` : ""}${isCritical ? ", on the critical path" : ""}`;
}

// Lines from what was waited for to who waited: along the critical path, and of the span pointed at.
function links({ data, cells, scale }) {
  const place = new Map(cells.map((cell) => [cell.i, cell]));
  const line = (from, to, kind) => {
    const [a, b] = [place.get(from), place.get(to)];
    if (!a || !b || a === b) return nothing;
    const [x1, y1] = [scale(a.span.end), rowTop(a.lane, a.row) + ROW / 2];
    const [x2, y2] = [scale(Math.max(b.span.queued, a.span.end)), rowTop(b.lane, b.row) + ROW / 2];
    const bend = Math.min(48, (x2 - x1) / 2);
    return svg`<path class="link ${kind}"
      d="M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}"></path>`;
  };
  const path = data.critical_spans;
  const pairs = pointed(data.spans).flatMap((i) => [
    ...(data.spans[i].waited_for === null ? [] : [[data.spans[i].waited_for, i, "before"]]),
    ...data.spans.flatMap((span, k) => (span.waited_for === i ? [[i, k, "after"]] : [])),
  ]);
  return svg`<g aria-hidden="true">
    ${path.slice(1).map((i, k) => line(path[k], i, "critical"))}
    ${pairs.map(([from, to, kind]) => line(from, to, kind))}
  </g>`;
}

// Indices of the spans that are pointed at.
function pointed(spans) {
  const now = shown();
  if (now?.graph !== "e") return [];
  const mine = spans.flatMap((span, i) => (span.primitive === now.id ? [i] : []));
  return mine.includes(now.span) ? [now.span] : mine;
}
