// What is seen of the two graphs: all of it at first, closer and further, dragged, and the primitive
// that a link leads to in the middle.
import { changed } from "./store.js";

const LARGEST = 2;
const READABLE = 0.9; // of its own size, where names can be read
const BY = 1.25;
const STILL = 4; // px that a pointer moves in a click

const fresh = () => ({ scale: 0, tab: "", box: null, size: null, keep: null, sought: "" });

export const panes = { p: fresh(), e: fresh() };

export function resetPanes() {
  for (const which of Object.keys(panes)) panes[which] = fresh();
}

// Of a graph of that size, in the box that there is.
export function scaleOf(which, place) {
  const pane = panes[which];
  pane.size = place;
  return pane.scale || fitting(pane);
}

const fitting = ({ box, size }) =>
  box ? Math.min(1, (box.width - 2) / size.width, (box.height - 2) / size.height) : 1;

const boxOf = (which) => document.querySelector(`figure[data-graph="${which}"] .scroll`);

// x, y: of the point that stays where it is, in px from the box's corner; its middle by default.
function zoomTo(which, scale, x, y) {
  const pane = panes[which];
  const box = boxOf(which);
  const now = pane.scale || fitting(pane);
  const at = { x: x ?? box.clientWidth / 2, y: y ?? box.clientHeight / 2 };
  pane.keep = { ...at, left: (box.scrollLeft + at.x) / now, top: (box.scrollTop + at.y) / now };
  pane.scale = Math.min(LARGEST, Math.max(fitting(pane), scale));
  changed();
}

export const closer = (which) => zoomTo(which, (panes[which].scale || fitting(panes[which])) * BY);
export const further = (which) => zoomTo(which, (panes[which].scale || fitting(panes[which])) / BY);

export function fit(which) {
  panes[which].scale = 0;
  changed();
}

export const wheelOf = (which) => ({
  passive: false,
  handleEvent(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const { left, top } = event.currentTarget.getBoundingClientRect();
    const scale = (panes[which].scale || fitting(panes[which])) * Math.exp(-event.deltaY / 300);
    zoomTo(which, scale, event.clientX - left, event.clientY - top);
  },
});

// Leads to a primitive once, so that who looks elsewhere afterwards is left alone.
export function seek(which, id, place) {
  const pane = panes[which];
  if (!id || pane.sought === id || !pane.box || !place.nodes.has(id)) return;
  pane.sought = id;
  pane.scale = Math.max(pane.scale, READABLE, fitting(pane));
  const { x, y } = place.nodes.get(id);
  pane.keep = { x: pane.box.width / 2, y: pane.box.height / 2, left: x, top: y };
}

// After each drawing: the box that there is, and what is to stay in place.
export function afterGraphs() {
  for (const [which, pane] of Object.entries(panes)) {
    const box = boxOf(which);
    if (!box) continue;
    if (pane.keep && pane.scale) {
      box.scrollLeft = pane.keep.left * pane.scale - pane.keep.x;
      box.scrollTop = pane.keep.top * pane.scale - pane.keep.y;
    }
    pane.keep = null;
    const { clientWidth: width, clientHeight: height } = box;
    const known = pane.box;
    if (width && (known?.width !== width || known?.height !== height) && !bars(known, box)) {
      pane.box = { width, height };
      changed();
    }
  }
}

// Whether the box is smaller only because it has scroll bars now.
const bars = (known, box) =>
  known && box.offsetWidth - known.width < 20 && box.offsetHeight - known.height < 20 &&
  box.offsetWidth >= known.width && box.offsetHeight >= known.height;

// The mouse drags what is shown; a finger scrolls by itself.
export function drag(event) {
  if (event.button !== 0 || event.pointerType !== "mouse") return;
  const box = event.currentTarget;
  const [x, y] = [event.clientX + box.scrollLeft, event.clientY + box.scrollTop];
  let moved = false;
  const move = ({ clientX, clientY }) => {
    const [left, top] = [x - clientX, y - clientY];
    moved ||= Math.hypot(left - box.scrollLeft, top - box.scrollTop) > STILL;
    if (!moved) return;
    box.classList.add("dragged");
    box.scrollTo(left, top);
  };
  const up = () => {
    removeEventListener("pointermove", move);
    box.classList.remove("dragged");
    if (!moved) return;
    addEventListener("click", swallow, true);
    setTimeout(() => removeEventListener("click", swallow, true));
  };
  addEventListener("pointermove", move);
  addEventListener("pointerup", up, { once: true });
}

const swallow = (event) => event.stopPropagation();
