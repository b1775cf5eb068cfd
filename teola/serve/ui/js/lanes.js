// The geometry of the timeline: lanes by engine and instance, rows within them, ticks. No drawing.

export const ROW = 20;
export const GAP = 3;
export const PAD = 6;
const MANY = 10; // rows of a lane, before waiting is drawn over what ran in the same row

// [engine, instance] as people read it; what waits and is nowhere yet stands with the first instance.
export function namesOf({ engine, instance }) {
  return engine ? [engine, `#${Math.max(0, instance)}`] : ["server", ""];
}

// [{names, top, height, spans: [{span, i, row}], groups: [{row, rows, start, end, size}]}]
export function lanesOf(spans) {
  const found = new Map();
  spans.forEach((span, i) => {
    if (span.state === "skipped" || span.state === "fused") return;
    const key = namesOf(span).join("\n");
    if (!found.has(key)) found.set(key, { names: namesOf(span), members: [] });
    found.get(key).members.push({ span, i });
  });
  const order = sorted([...found.values()]);
  let top = 0;
  return order.map(({ names, members }) => {
    const lane = { names, top, ...packed(members) };
    lane.height = 2 * PAD + lane.rows * (ROW + GAP) - GAP;
    top += lane.height + 1;
    return lane;
  });
}

// The server itself, then engines as they were first needed, each with its instances in order.
function sorted(lanes) {
  const begun = new Map([["server", -1]]);
  for (const { names: [name], members } of lanes) {
    const first = Math.min(...members.map(({ span }) => span.queued));
    begun.set(name, Math.min(begun.get(name) ?? Infinity, first));
  }
  const by = (a, b) => a.localeCompare(b, "en", { numeric: true });
  return lanes.sort((a, b) =>
    begun.get(a.names[0]) - begun.get(b.names[0]) || by(a.names[0], b.names[0]) || by(a.names[1], b.names[1]));
}

// What shares a batch is one block of rows; blocks go into the first rows that are free.
function packed(members) {
  const blocks = blocksOf(members);
  const wide = placed(blocks, "queued");
  return wide.rows <= MANY ? wide : placed(blocks, "start");
}

function blocksOf(members) {
  const found = new Map();
  for (const one of members) {
    const { span } = one;
    const key = span.batch >= 0 && span.batch_size > 1 ? `${span.batch} ${span.start}` : `one ${one.i}`;
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(one);
  }
  return [...found.values()].sort((a, b) => a[0].span.start - b[0].span.start || a[0].i - b[0].i);
}

function placed(blocks, from) {
  const free = []; // by row: when it is free again
  const spans = [];
  const groups = [];
  for (const block of blocks) {
    const start = Math.min(...block.map(({ span }) => span[from]));
    const end = Math.max(...block.map(({ span }) => span.end));
    const row = fits(free, start, block.length);
    block.forEach((one, k) => {
      free[row + k] = end;
      spans.push({ ...one, row: row + k });
    });
    if (block.length > 1) {
      const begun = Math.min(...block.map(({ span }) => span.start));
      groups.push({ row, rows: block.length, start: begun, end, size: block[0].span.batch_size });
    }
  }
  return { spans, groups, rows: Math.max(1, free.length) };
}

function fits(free, start, rows) {
  for (let row = 0; ; row += 1) {
    const taken = free.slice(row, row + rows).some((until) => until > start + 1e-9);
    if (!taken) return row;
  }
}

// Round times about `pixels` apart, from 0 to `end`.
export function ticks(end, width, pixels = 96) {
  if (!(end > 0)) return [0];
  const rough = (end * pixels) / width;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((s) => s >= rough) ?? 10 * power;
  const found = [];
  for (let k = 0; k * step <= end * (1 + 1e-9); k += 1) found.push(k * step);
  return found;
}

// Every span with its lane and a key that stays the same while the query runs, earliest first.
export function cellsOf(lanes) {
  const tries = new Map();
  return lanes
    .flatMap((lane) => lane.spans.map((one) => ({ ...one, lane })))
    .sort((a, b) => a.i - b.i)
    .map((cell) => {
      const name = `${cell.span.primitive} ${cell.span.lo}`;
      tries.set(name, (tries.get(name) ?? 0) + 1);
      return { ...cell, key: `${name} ${tries.get(name)}` };
    });
}
