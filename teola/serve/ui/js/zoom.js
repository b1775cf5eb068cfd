// How much of the timeline is seen, and the way through it by keys.
import { changed } from "./store.js";

const CLOSEST = 400;
const BY = 1.6;

// zoom: 1 shows all. width: of the box in px. at: the span that Tab leads to.
export const view = { zoom: 1, width: 720, at: 0, keep: null };

const box = () => document.querySelector(".timeline .scroll");

export const closer = () => zoomTo(view.zoom * BY);
export const further = () => zoomTo(view.zoom / BY);
export const all = () => zoomTo(1);

export function resetZoom() {
  Object.assign(view, { zoom: 1, at: 0, keep: null });
}

// x: of the point that stays where it is, in px from the left of the box.
function zoomTo(zoom, x = view.width / 2) {
  view.keep = { x, share: (box().scrollLeft + x) / (view.width * view.zoom) };
  view.zoom = Math.min(CLOSEST, Math.max(1, zoom));
  changed();
}

export const wheel = {
  passive: false,
  handleEvent(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const { left } = box().getBoundingClientRect();
    zoomTo(view.zoom * Math.exp(-event.deltaY / 300), event.clientX - left);
  },
};

// After each drawing: the width that there is, and what the zoom is to keep in place.
export function afterTimeline() {
  const scroll = box();
  if (!scroll) return;
  if (view.keep) {
    scroll.scrollLeft = view.keep.share * view.width * view.zoom - view.keep.x;
    view.keep = null;
  }
  if (scroll.clientWidth && Math.abs(scroll.clientWidth - view.width) > 1) {
    view.width = scroll.clientWidth;
    changed();
  }
}

const ZOOMS = { "+": closer, "=": closer, "-": further, 0: all };

const MOVES = {
  ArrowRight: (cells, k) => cells[k + 1],
  ArrowLeft: (cells, k) => cells[k - 1],
  ArrowDown: (cells, k, lanes) => beside(cells[k], lanes, 1),
  ArrowUp: (cells, k, lanes) => beside(cells[k], lanes, -1),
  Home: (cells) => cells[0],
  End: (cells) => cells.at(-1),
};

// The span nearest in time in the lane below or above.
function beside(cell, lanes, by) {
  const lane = lanes[lanes.indexOf(cell?.lane) + by];
  const middle = ({ span }) => (span.start + span.end) / 2;
  const away = (one) => Math.abs(middle(one) - middle(cell));
  return lane && [...lane.spans].sort((a, b) => away(a) - away(b))[0];
}

export function onKey(event, cells, lanes) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (ZOOMS[event.key]) ZOOMS[event.key]();
  else if (MOVES[event.key] && event.target !== box()) {
    const k = cells.findIndex((cell) => cell.i === view.at);
    const next = MOVES[event.key](cells, k, lanes);
    if (next) focus(next.i);
  } else if (event.key === "Enter" || event.key === " ") {
    if (event.target.dataset.span === undefined) return;
    event.target.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  } else return;
  event.preventDefault();
}

function focus(i) {
  const element = box().querySelector(`[data-span="${i}"]`);
  element?.focus();
  element?.querySelector("rect").scrollIntoView({ block: "nearest", inline: "nearest" });
}
