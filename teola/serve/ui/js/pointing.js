// Which primitive is pointed at, in whichever of the pictures, and which others light up with it.
// One that is held stays when the pointer leaves, and is in the URL: `at=embed.1` of the e-graph,
// `at=p:embed` of the p-graph.
import { put } from "./router.js";
import { changed, state } from "./store.js";

let hover = null; // {graph: "e" | "p", id, span}: span is an index into the timeline's, if it is one

export function point(what) {
  if (what?.graph === hover?.graph && what?.id === hover?.id && what?.span === hover?.span) return;
  hover = what;
  changed();
}

const held = () => {
  const at = state.route.query.get("at");
  if (!at) return null;
  return at.startsWith("p:") ? { graph: "p", id: at.slice(2) } : { graph: "e", id: at };
};

export function hold(what) {
  const at = what.graph === "p" ? `p:${what.id}` : what.id;
  put("at", state.route.query.get("at") === at ? "" : at);
}

export function letGo() {
  hover = null;
  put("at", "");
}

export const shown = () => hover ?? held();

// What is held as it stands in a graph: itself, or the first that lights up with it there. lit: of
// that graph.
export function heldIn(which, lit) {
  const now = held();
  return now?.graph === which ? now.id : now && !hover ? [...(lit ?? [])][0] : undefined;
}

export const isHeld = (graph, id) => {
  const now = held();
  return now?.graph === graph && now?.id === id;
};

// {e, p}: sets of primitives that are lit; null if nothing is pointed at.
export function lit(explanation) {
  const now = shown();
  if (!now) return null;
  const origins = explanation?.origins ?? {};
  if (now.graph === "e") {
    const from = origins[now.id];
    return { e: new Set([now.id]), p: new Set(from ? [from] : []) };
  }
  const made = Object.keys(origins).filter((id) => origins[id] === now.id);
  return { e: new Set(made), p: new Set([now.id]) };
}
