// p-graph and e-graph side by side; what is pointed at in one lights up in the other.
import { html, nothing, svg } from "../vendor/lit-html/lit-html.js";
import { plural } from "./format.js";
import { HEIGHT, labelOf, layoutOf, nameOf } from "./layout.js";
import { classOf } from "./ops.js";
import { hold, isHeld, lit, point } from "./pointing.js";
import { changed } from "./store.js";

const TITLES = { p: "p-graph", e: "e-graph" };
const ABOUT = { p: "as the template has it", e: "after the passes: what ran" };
const view = { p: { scale: 0, tab: "" }, e: { scale: 0, tab: "" } };

export function graphs({ explanation, timeline }) {
  const on = lit(explanation);
  const states = statesOf(timeline);
  const path = new Set((timeline?.critical_path ?? []).map((s) => s.primitive));
  const one = (which, graph) => pane(which, graph, { on: on?.[which], states, path });
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

function pane(which, graph, lights) {
  const place = layoutOf(graph);
  const mine = view[which];
  const scale = mine.scale || 1;
  const zoom = (by) => () => {
    mine.scale = Math.min(2, Math.max(0.3, scale * by));
    changed();
  };
  const tab = place.nodes.has(mine.tab) ? mine.tab : graph.primitives[0]?.id;
  return html`<figure>
    <figcaption><b>${TITLES[which]}</b> <span class="dim">${ABOUT[which]}</span>
      <small>${plural(graph.primitives.length, "primitive")}</small>
      <span class="spring"></span>
      <span class="controls" role="group" aria-label="Zoom of the ${TITLES[which]}">
        <button class="plain" aria-label="Smaller" @click=${zoom(1 / 1.25)}>−</button>
        <button class="plain" aria-label="Larger" @click=${zoom(1.25)}>+</button>
      </span></figcaption>
    <div class="scroll" tabindex="-1" @keydown=${(event) => onKey(event, which, graph, place)}>
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
  const isPath = which === "e" && path.has(from) && path.has(to);
  const light = on ? (isLit ? "lit" : "dim") : "";
  return svg`<path class="edge ${kind} ${light} ${isPath ? "critical" : ""}" d=${d}
    marker-end="url(#arrow-${which})"></path>`;
}

function node(p, which, { x, y, w }, isTab, { on, states, path }) {
  const state = which === "e" ? (states.get(p.id) ?? "waiting") : "";
  const isPath = which === "e" && path.has(p.id);
  const light = on ? (on.has(p.id) ? "lit" : "dim") : "";
  const what = { graph: which, id: p.id };
  const told = `${p.id}, ${labelOf(p)}, ${p.engine || "in the server"}${
    state ? `, ${state}` : ""}${isPath ? ", on the critical path" : ""}`;
  return svg`<g class="node op-${classOf(p.op)} is-${state} ${light} ${isPath ? "critical" : ""}"
      role="option" tabindex=${isTab ? 0 : -1} data-id=${p.id} aria-label=${told}
      aria-selected=${isHeld(which, p.id)} transform="translate(${x - w / 2} ${y - HEIGHT / 2})"
      @mouseenter=${() => point(what)} @mouseleave=${() => point(null)} @click=${() => hold(what)}
      @focus=${() => { view[which].tab = p.id; point(what); }} @blur=${() => point(null)}>
    <rect class="box" width=${w} height=${HEIGHT} rx="6"></rect>
    <rect class="edge-of-box" x="0" y="6" width="4" height=${HEIGHT - 12} rx="2"></rect>
    <text class="name" x="13" y="17">${nameOf(p)}</text>
    <text class="op" x="13" y="31">${labelOf(p)}</text>
    ${state === "failed" ? svg`<text class="sign" x=${w - 15} y="17">✕</text>` : nothing}
  </g>`;
}

function onKey(event, which, graph, place) {
  const now = view[which].tab || graph.primitives[0]?.id;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
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
