// The server: requests with the key, errors in its own words, and events that survive a lost
// connection.
import { changed, state } from "./store.js";

const ROOT = new URL("../", document.baseURI); // the page is at /ui/ below whatever prefix
const KEY = "teola-key";
const TRIES = 7; // 13 s, with the pauses between
const LAST = ["done", "error"];

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function useKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

export const hasKey = () => Boolean(sessionStorage.getItem(KEY));

// A response that is fine; Refused otherwise, TypeError where the server cannot be reached.
export async function call(path, options = {}) {
  const headers = new Headers(options.headers);
  const key = sessionStorage.getItem(KEY);
  if (key) headers.set("authorization", `Bearer ${key}`);
  const response = await fetch(new URL(path, ROOT), { ...options, headers, cache: "no-store" });
  if (response.ok) return response;
  if (response.status === 401) {
    state.locked = true;
    changed();
  }
  const body = await response.json().catch(() => ({}));
  const error = body.error ?? {};
  const message = error.message ?? `the server answered ${response.status}`;
  throw new Refused(response.status, error.code ?? "", message);
}

export async function get(path, options) {
  return (await call(path, options)).json();
}

export const queryPath = (id, rest = "") => `v1/queries/${encodeURIComponent(id)}${rest}`;

// Server-sent events of a response: {id, kind, data}.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const found = parsed(block);
      if (found) yield found;
    }
  }
}

function parsed(block) {
  const fields = {};
  for (const line of block.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
  }
  if (!fields.data) return null; // a comment that keeps the line open
  return { id: Number(fields.id), kind: fields.event, data: JSON.parse(fields.data) };
}

// Every event of a query in order, once, until the last. response: a stream that has begun, if
// there is one. A connection that breaks is taken up again after the last event that came; trying:
// told which further try of how many that is, and 0 once it is there again.
export async function follow(id, response, tell, signal, trying) {
  let last = 0;
  for (let tries = 1; tries <= TRIES; tries += 1) {
    try {
      response ??= await call(queryPath(id, "/events"), {
        headers: last ? { "last-event-id": String(last) } : {},
        signal,
      });
      trying(0, TRIES);
      for await (const event of events(response)) {
        if (event.id <= last) continue;
        last = event.id;
        tries = 1;
        tell(event);
        if (LAST.includes(event.kind)) return;
      }
    } catch (error) {
      if (signal?.aborted) return;
      if (error instanceof Refused && error.status < 500) throw error;
    }
    response = null;
    if (tries === TRIES) break;
    trying(tries, TRIES - 1);
    await pause(100 * 2 ** tries);
    if (signal?.aborted) return;
  }
  throw new Error("The connection to the server was lost. Does teola serve still run?");
}

function pause(ms) {
  return new Promise((done) => setTimeout(done, ms));
}
