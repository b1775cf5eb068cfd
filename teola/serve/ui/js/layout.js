// Where the primitives of a graph stand: layers from top to bottom, by dagre. Once for each graph.
import { Graph, layout } from "../vendor/dagre/dagre.esm.js";
import { words } from "./ops.js";

export const HEIGHT = 40;
const LETTER = 7.1; // px of a character of a name
const SMALL = 6.2; // px of a character below it
const LONGEST = 26; // characters

const made = new WeakMap();

export const nameOf = ({ id }) => (id.length > LONGEST ? `${id.slice(0, LONGEST - 1)}…` : id);

export const labelOf = ({ op, items }) => `${words(op)}${items > 1 ? ` × ${items}` : ""}`;

// {width, height, nodes: id -> {x, y, w}, edges: [{from, to, kind, d}]}; x, y: centres in px.
export function layoutOf(graph) {
  if (!made.has(graph)) made.set(graph, compute(graph));
  return made.get(graph);
}

function compute({ primitives, edges }) {
  const found = new Graph({ multigraph: true });
  found.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 22, edgesep: 10, marginx: 10, marginy: 10 });
  found.setDefaultEdgeLabel(() => ({}));
  for (const p of primitives) {
    const width = Math.max(26 + nameOf(p).length * LETTER, 24 + labelOf(p).length * SMALL);
    found.setNode(p.id, { width, height: HEIGHT });
  }
  edges.forEach((edge, k) => found.setEdge(edge.from, edge.to, {}, String(k)));
  layout(found);
  const { width, height } = found.graph();
  return {
    width: Math.ceil(width),
    height: Math.ceil(height),
    nodes: new Map(primitives.map(({ id }) => {
      const { x, y, width: w } = found.node(id);
      return [id, { x, y, w }];
    })),
    edges: edges.map((edge, k) => ({
      ...edge,
      d: curve(found.edge({ v: edge.from, w: edge.to, name: String(k) }).points),
    })),
  };
}

// A smooth path through the middles between the points.
function curve(points) {
  const [first, ...rest] = points;
  const last = rest.at(-1);
  const parts = [`M${at(first)}`];
  rest.slice(0, -1).forEach((point, k) => {
    const next = rest[k + 1];
    const until = k + 2 === rest.length ? last : { x: (point.x + next.x) / 2, y: (point.y + next.y) / 2 };
    parts.push(`Q${at(point)} ${at(until)}`);
  });
  if (rest.length === 1) parts.push(`L${at(last)}`);
  return parts.join(" ");
}

const at = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
