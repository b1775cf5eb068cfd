// Where the LLM calls of a query went, and why there.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { count, plural } from "./format.js";
import { hold, lit, point } from "./pointing.js";

export function calls({ explanation, timeline }) {
  const waiting = timeline.spans.filter(({ state, why }) => state === "queued" && why);
  const on = lit(explanation);
  return html`<ul class="calls">
    ${timeline.calls.map((call) => row(call, on))} ${waiting.map((span) => row({ ...span, waits: true }, on))}
  </ul>`;
}

// Whether there is anything to tell.
export const hasCalls = ({ timeline }) =>
  Boolean(timeline) && (timeline.calls.length > 0 || timeline.spans.some(({ state, why }) => state === "queued" && why));

function row({ primitive, engine, instance, why, waits, prompt_tokens: all, found_tokens: found }, on) {
  const what = { graph: "e", id: primitive };
  return html`<li class=${on?.e.has(primitive) ? "lit" : ""} @mouseenter=${() => point(what)}
      @mouseleave=${() => point(null)}>
    <button class="name" @focus=${() => point(what)} @blur=${() => point(null)}
      @click=${() => hold(what)}>${primitive}</button>
    <span class="where">${waits ? "waits" : nothing} ${engine}${instance < 0 ? nothing : ` #${instance}`}</span>
    <span>${why}${all ? html` <small class="digits">· found ${count(found)} of ${plural(all, "token")}</small>` : nothing}</span>
  </li>`;
}
