// p-graph and e-graph side by side; what is pointed at in one lights up in the other.
import { html, nothing, svg } from "../vendor/lit-html/lit-html.js";
import { count, plural } from "./format.js";
import { HEIGHT, labelOf, layoutOf, nameOf } from "./layout.js";
import { classOf } from "./ops.js";
import { closer, drag, fit, further, panes, scaleOf, seek, wheelOf } from "./panes.js";
import { heldIn, hold, isHeld, lit, point } from "./pointing.js";

const TITLES = { p: "p-graph", e: "e-graph" };
const ABOUT = { p: "as the template has it", e: "after the passes: what ran" };

export function graphs({ explanation, timeline }) {
  const on = lit(explanation);
  const states = statesOf(timeline);
  const path = pathOf(timeline, explanation.e_graph);
  const told = { p: plural(explanation.p_graph.primitives.length, "primitive"),
    e: counted({ explanation, timeline }) };
  const one = (which, graph) => pane(which, graph, told[which], { on: on?.[which], states, path });
  return html`<div class="graphs">
    ${one("p", explanation.p_graph)} ${one("e", explanation.e_graph)}
  </div>`;
}

// Primitive -> the state of the last of its spans.
function statesOf(timeline) {
  const found = new Map();
  for (const { primitive, state } of timeline?.spans ?? []) found.set(primitive, state);
  return found;
}

// The critical path through the query's own graph: its primitives, and the steps from one to the next.
function pathOf(timeline, graph) {
  const own = new Set(graph.primitives.map((p) => p.id));
  const ids = (timeline?.critical_spans ?? []).map((i) => timeline.spans[i].primitive).filter((id) => own.has(id));
  return { nodes: new Set(ids), steps: new Set(ids.slice(1).map((id, k) => step(ids[k], id))) };
}

const step = (from, to) => `${from}\n${to}`;

// How many primitives there are, and how many of them ran.
export function counted({ explanation, timeline }) {
  const ids = explanation.e_graph.primitives.map((p) => p.id);
  const states = statesOf(timeline);
  const ran = ids.filter((id) => states.get(id) === "done").length;
  return ran === ids.length ? plural(ran, "primitive") : `${count(ran)} of ${plural(ids.length, "primitive")} ran`;
}

function pane(which, graph, told, lights) {
  const place = layoutOf(graph);
  seek(which, heldIn(which, lights.on), place);
  const scale = scaleOf(which, place);
  const { tab: last } = panes[which];
  const tab = place.nodes.has(last) ? last : graph.primitives[0]?.id;
  return html`<figure data-graph=${which}>
    <figcaption><b>${TITLES[which]}</b> <span class="dim">${ABOUT[which]}</span>
      <small>${told}</small>
      <span class="spring"></span>
      <span class="controls" role="group" aria-label="Zoom of the ${TITLES[which]}">
        <button class="plain" aria-label="Smaller" @click=${() => further(which)}>−</button>
        <button class="plain" aria-label="Larger" @click=${() => closer(which)}>+</button>
        <button class="plain" title="All of it" @click=${() => fit(which)}>fit</button>
      </span></figcaption>
    <div class="scroll" tabindex="0" role="region" aria-label="${TITLES[which]}, scrolls"
      @pointerdown=${drag} @wheel=${wheelOf(which)}
      @keydown=${(event) => onKey(event, which, graph, place)}>
      <svg class="graph" role="listbox" aria-label=${`${TITLES[which]}, ${ABOUT[which]}`}
        width=${place.width * scale} height=${place.height * scale}
        viewBox="0 0 ${place.width} ${place.height}">
        <defs><marker id="arrow-${which}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"
          markerHeight="7" orient="auto"><path d="M0 1 L7 4 L0 7z"></path></marker></defs>
        ${place.edges.map((edge) => line(edge, which, lights))}
        ${graph.primitives.map((p) => node(p, which, place.nodes.get(p.id), p.id === tab, lights))}
      </svg>
    </div>
  </figure>`;
}

function line({ from, to, kind, d }, which, { on, path }) {
  const isLit = on?.has(from) || on?.has(to);
  const isPath = which === "e" && path.steps.has(step(from, to));
  const light = on ? (isLit ? "lit" : "dim") : "";
  return svg`<path class="edge ${kind} ${light} ${isPath ? "critical" : ""}" data-from=${from} data-to=${to} d=${d}
    marker-end="url(#arrow-${which})"></path>`;
}

function node(p, which, { x, y, w }, isTab, { on, states, path }) {
  const state = which === "e" ? (states.get(p.id) ?? "waiting") : "";
  const isPath = which === "e" && path.nodes.has(p.id);
  const light = on ? (on.has(p.id) ? "lit" : "dim") : "";
  const what = { graph: which, id: p.id };
  const told = `${p.id}, ${labelOf(p)}, ${p.engine || "in the server"}${
    state ? `, ${state}` : ""}${isPath ? ", on the critical path" : ""}`;
  return svg`<g class="node op-${classOf(p.op)} is-${state} ${light} ${isPath ? "critical" : ""}"
      role="option" tabindex=${isTab ? 0 : -1} data-id=${p.id} aria-label=${told}
      aria-selected=${isHeld(which, p.id)} transform="translate(${x - w / 2} ${y - HEIGHT / 2})"
      @mouseenter=${() => point(what)} @mouseleave=${() => point(null)} @click=${() => hold(what)}
      @focus=${() => { panes[which].tab = p.id; point(what); }} @blur=${() => point(null)}>
    <rect class="box" width=${w} height=${HEIGHT} rx="6"></rect>
    <rect class="edge-of-box" x="0" y="6" width="4" height=${HEIGHT - 12} rx="2"></rect>
    <text class="name" x="13" y="17">${nameOf(p)}</text>
    <text class="op" x="13" y="31">${labelOf(p)}</text>
    ${state === "failed" ? svg`<text class="sign" x=${w - 15} y="17">✕</text>` : nothing}
  </g>`;
}

function onKey(event, which, graph, place) {
  const now = panes[which].tab || graph.primitives[0]?.id;
  if (event.ctrlKey || event.metaKey || event.altKey || event.target === event.currentTarget) return;
  const next = target(event.key, now, graph, place);
  if (next) {
    const found = event.currentTarget.querySelector(`[data-id="${CSS.escape(next)}"]`);
    found?.focus();
    found?.querySelector("rect").scrollIntoView({ block: "nearest", inline: "nearest" });
  } else if ((event.key === "Enter" || event.key === " ") && event.target.dataset.id) {
    event.target.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  } else return;
  event.preventDefault();
}

function target(key, now, { primitives, edges }, place) {
  const row = primitives
    .filter(({ id }) => Math.abs(place.nodes.get(id).y - place.nodes.get(now).y) < 1)
    .sort((a, b) => place.nodes.get(a.id).x - place.nodes.get(b.id).x)
    .map(({ id }) => id);
  return {
    ArrowDown: () => edges.find((edge) => edge.from === now)?.to,
    ArrowUp: () => edges.find((edge) => edge.to === now)?.from,
    ArrowLeft: () => row[row.indexOf(now) - 1],
    ArrowRight: () => row[row.indexOf(now) + 1],
    Home: () => primitives[0].id,
    End: () => primitives.at(-1).id,
  }[key]?.();
}
