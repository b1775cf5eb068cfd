// The critical path as one bar: what the query's time was spent on, without counting twice what
// happened at the same time.
import { html, nothing, svg } from "../vendor/lit-html/lit-html.js";
import { seconds } from "./format.js";

export function summary({ timeline, state }) {
  const parts = timeline.spans.length ? timeline.shares : [];
  const total = timeline.end_s || 1;
  let at = 0;
  const bar = parts.map(({ name, s }) => {
    const x = (at / total) * 1000;
    at += s;
    return svg`<rect class="share op-${name}" x=${x} y="0" height="10" width=${(s / total) * 1000}></rect>`;
  });
  return html`<div class="summary">
    <svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">${bar}</svg>
    <ul class="legend" aria-label="The critical path by what was done">
      ${parts.map(({ name, label, s }) => html`<li><i class="swatch op-${name}"></i>${label}
        <b class="digits">${seconds(s)}</b>
        <small class="digits">${Math.round((100 * s) / total)} %</small></li>`)}
      ${parts.length ? nothing : html`<li>${state === "running" ? "nothing yet" : "nothing ran"}</li>`}
    </ul>
  </div>`;
}
