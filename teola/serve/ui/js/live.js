// Queries as this page follows them: events as they come, and the timeline and graphs that belong to
// them. One that this page asked for is followed to its end, whatever view is open, because leaving
// would cancel it; others only while they are looked at.
import { call, follow, get, queryPath, Refused } from "./api.js";
import { changed, say } from "./store.js";

const AFTER_PRIMITIVE = 250; // ms from an event until the timeline is asked for again
const AFTER_TOKEN = 800;
const AT_LEAST = 2000; // while nothing happens: what runs grows
const KEPT = 50;
const UNSURE = "It may have ended before the server was started; the last 512 are kept.";

const TABLES = "query-tables"; // the application of queries over tables

const known = new Map();

// Whether a query has not ended, as far as the page knows.
export const alive = ({ state }) => state === "running" || state === "waiting";

// What events tell of a query, before the first.
const nothingYet = () => ({ text: "", steps: new Map(), plan: null, stages: new Map(), rows: [] });

function fresh(id, own) {
  const query = {
    id, own, app: "", mode: "", state: "running", created: Date.now() / 1000, asked: null, asks: [],
    since: null, ...nothingYet(), result: null, error: "", missing: "", timeline: null, explanation: null,
    cancelling: false, uncancelled: "", trying: null, following: null, timer: 0, due: 0,
  };
  known.set(id, query);
  const oldest = [...known.values()].find((one) => !alive(one));
  if (known.size > KEPT && oldest) known.delete(oldest.id);
  return query;
}

// Asks, and gives the id as soon as the server has taken the query. Throws what it refuses with.
// asked: what the body asks, as the server would tell it.
export async function begin(app, body, asked) {
  const since = performance.now();
  const headers = typeof body === "string" ? { "content-type": "application/json" } : {};
  const path = `v1/apps/${encodeURIComponent(app)}/queries`;
  const response = await call(path, { method: "POST", body, headers });
  const query = fresh(response.headers.get("x-query-id"), true);
  Object.assign(query, { app, asked, since, mode: "stream" });
  attend(query, response);
  return query.id;
}

// The query `id`, which is asked for if this page does not follow it yet.
export function opened(id) {
  const query = known.get(id) ?? fresh(id, false);
  if (!query.following && alive(query)) look(query);
  return query;
}

// Nobody looks any more.
export function closed(id) {
  const query = known.get(id);
  if (!query || query.own) return;
  query.following?.abort();
  query.following = null;
  clearTimeout(query.timer);
  query.timer = 0;
  if (alive(query)) known.delete(id);
}

// Looks again at a query of which the page has lost sight.
export function reopened(query) {
  const anew = { state: "running", asks: [], own: false, ...nothingYet(), error: "", trying: null };
  Object.assign(query, anew);
  look(query);
  changed();
}

async function look(query) {
  query.following = new AbortController();
  const { signal } = query.following;
  try {
    const { result, ...about } = await get(queryPath(query.id), { signal });
    if (query.result || query.error) return;
    Object.assign(query, about, { result: result ?? null, error: result?.error ?? "" });
    query.since = performance.now() - 1000 * (about.running_s ?? 0);
    if (alive(about) || about.app === TABLES) await attend(query, null); // whose events tell its plan
    else await settle(query);
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof Refused && error.status === 401) query.following = null;
    if (!(error instanceof Refused)) return lose(query, "The server does not answer. Does teola serve still run?");
    query.missing = error.status === 404 ? `${error.message}. ${UNSURE}` : error.message;
  }
  changed();
}

async function attend(query, response) {
  query.following ??= new AbortController();
  soon(query, AFTER_PRIMITIVE);
  const trying = (now, most) => {
    query.trying = now ? { now, most } : null;
    changed();
  };
  const { signal } = query.following;
  try {
    await follow(query.id, response, (event) => take(query, event), signal, trying);
  } catch (error) {
    return lose(query, error.message);
  }
  if (!signal.aborted) await settle(query);
}

// Nothing is known of the query any more: the server is gone, or was started anew.
function lose(query, why) {
  clearTimeout(query.timer);
  Object.assign(query, { state: "lost", error: why, trying: null, following: null, timer: 0 });
  say("The query is out of sight");
}

function take(query, { kind, data }) {
  const waited = query.state === "waiting";
  if (kind !== "waiting") Object.assign(query, { state: "running", asks: [] });
  if (kind === "waiting") {
    Object.assign(query, { state: "waiting", asks: data.asks });
    soon(query, AFTER_PRIMITIVE);
    say("The query waits for an answer");
  } else if (kind === "token") {
    query.text += data.text;
    soon(query, AFTER_TOKEN);
  } else if (kind === "plan") query.plan = data;
  else if (kind === "progress") query.stages.set(data.operator, data);
  else if (kind === "rows") query.rows.push(...data.rows);
  else if (kind === "step") query.steps.set(data.id, data);
  else if (kind === "primitive") soon(query, AFTER_PRIMITIVE);
  else if (kind === "done") {
    query.result = data;
    query.state = data.state;
    say("The answer is there");
  } else if (kind === "restarted") Object.assign(query, nothingYet()); // by another server
  else if (kind === "error") {
    query.error = data.error.message;
    query.state = { cancelled: "cancelled", deadline: "deadline" }[data.error.code] ?? "failed";
    say(`The query ended: ${query.state}`);
  }
  if (waited && query.state === "running") soon(query, AFTER_PRIMITIVE);
  changed();
}

// Somebody has answered: what the server says of the query since (null: it has to be asked).
export async function answered(query, told) {
  const { state, asks } = told ?? (await get(queryPath(query.id)).catch(() => query));
  if (!alive(query)) return; // its end came meanwhile
  Object.assign(query, { state, asks: asks ?? [] });
  if (state === "running") soon(query, AFTER_PRIMITIVE);
  changed();
}

// Asks for the timeline in `ms` at the latest.
function soon(query, ms) {
  const due = performance.now() + ms;
  if (query.timer && query.due <= due) return;
  clearTimeout(query.timer);
  query.due = due;
  query.timer = setTimeout(async () => {
    await lookInside(query);
    query.timer = 0;
    if (query.state === "running" && !query.following?.signal.aborted) soon(query, AT_LEAST);
  }, ms);
}

// The query has ended: everything once more, as it stays.
async function settle(query) {
  clearTimeout(query.timer);
  query.timer = 0;
  await lookInside(query);
  try {
    const { state, created, latency_s, asked } = await get(queryPath(query.id));
    Object.assign(query, { state, created, latency_s, asked: asked ?? null });
  } catch (error) {
    if (alive(query)) return lose(query, error.message);
  }
  changed();
}

async function lookInside(query) {
  const ask = (rest) => get(queryPath(query.id, rest)).catch(() => null); // not there yet, or gone
  const [timeline, explanation] = await Promise.all([
    ask("/timeline"),
    query.explanation ?? ask("/explanation"),
  ]);
  query.timeline = timeline ?? query.timeline;
  query.explanation = explanation ?? query.explanation;
  query.looked = true;
  changed();
}

// Has the server delete what the query asked.
export async function forget(query) {
  try {
    await call(queryPath(query.id, "/asked"), { method: "DELETE" });
    query.asked = null;
    say("The server has deleted what was asked");
  } catch (error) {
    say(`It is still there: ${error.message}`);
  }
}

export async function cancel(query) {
  Object.assign(query, { cancelling: true, uncancelled: "" });
  changed();
  try {
    await call(queryPath(query.id), { method: "DELETE" });
  } catch (error) {
    query.uncancelled = error instanceof Refused ? error.message : "the server does not answer";
  }
  query.cancelling = false;
  changed();
}
