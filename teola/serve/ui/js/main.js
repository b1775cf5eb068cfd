// The page: header, one view, help. Everything is drawn from `state`.
import { html, nothing, render } from "../vendor/lit-html/lit-html.js";
import { get, hasKey, Refused, useKey } from "./api.js";
import { ask } from "./ask.js";
import { engines } from "./engines.js";
import { help, openHelp, onKey, setTheme } from "./help.js";
import { queries } from "./queries.js";
import { query } from "./query.js";
import { parse } from "./router.js";
import { changed, drawnBy, state } from "./store.js";
import { waiting } from "./waiting.js";

const VIEWS = { ask, queries, query, waiting, engines };
const TITLES = { ask: "Ask", queries: "Queries", query: "Query", waiting: "Waiting", engines: "Engines" };
let view = null;

function header() {
  const { name } = state.route;
  const item = (to, title, key) => {
    const here = name === to || (name === "query" && to === "queries");
    const current = here ? "page" : nothing;
    return html`<a href="#/${to}" aria-current=${current} aria-keyshortcuts=${key}>${title}</a>`;
  };
  return html`<header class="top">
    <a class="skip" href="#main" @click=${skip}>Skip to the content</a>
    <a class="brand" href="#/ask"><img src="icon.svg" alt="" width="22" height="22">Teola</a>
    <nav aria-label="Views">
      ${item("ask", "Ask", "a")} ${item("queries", "Queries", "q")}
      ${item("waiting", "Waiting", "w")} ${item("engines", "Engines", "e")}
    </nav>
    <span class="spring"></span>
    ${hasKey() && !state.locked
      ? html`<button class="plain wide-only" @click=${forget}>Forget the key</button>`
      : nothing}
    <button class="plain" aria-label="Light or dark" title="Light or dark (t)" @click=${setTheme}>
      <svg class="icon" viewBox="0 0 20 20" aria-hidden="true">
        <circle cx="10" cy="10" r="7"></circle>
        <path d="M10 3a7 7 0 0 1 0 14z"></path>
      </svg>
    </button>
    <button class="plain" aria-label="Help and shortcuts" title="Help (?)" @click=${openHelp}>?</button>
  </header>`;
}

const asking = () =>
  state.trouble ? nothing : html`<p class="wait" role="status">Asking the server …</p>`;

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function forget() {
  useKey("");
  state.locked = true;
  changed();
}

function keyCard() {
  return html`<form class="card narrow" @submit=${unlock}>
    <h1>This server asks for an API key</h1>
    <p>Whoever runs it makes one with <code>teola keys create NAME</code>. It stays in this tab and is
      forgotten when the tab is closed.</p>
    <label for="key">API key</label>
    <input id="key" name="key" type="password" autocomplete="off" required placeholder="teola_…">
    ${state.wrongKey ? html`<p class="error" role="alert">${state.wrongKey}</p>` : nothing}
    <div class="row"><button class="main">Use this key</button></div>
  </form>`;
}

async function unlock(event) {
  event.preventDefault();
  useKey(new FormData(event.target).get("key").trim());
  state.locked = false;
  state.wrongKey = "";
  await start();
  if (state.locked) state.wrongKey = "The server does not know this key; look for a missing letter.";
  changed();
}

function page() {
  document.title = `${TITLES[state.route.name]} · Teola`;
  const body = state.locked ? keyCard() : state.apps ? view.draw() : asking();
  return html`${header()}
    ${state.trouble
      ? html`<p class="note trouble" role="alert">${state.trouble}
          <button class="plain" @click=${start}>Try again</button></p>`
      : nothing}
    <main id="main" tabindex="-1" class="view-${state.route.name}">${body}</main>
    ${help()}
    <p class="unseen" role="status" aria-live="polite">${state.told}</p>`;
}

function drawPage() {
  render(page(), document.getElementById("page"));
  view?.drawn?.();
}

function arrive() {
  const before = state.route;
  state.route = parse(location.hash);
  const next = VIEWS[state.route.name];
  if (view !== next || before.id !== state.route.id) {
    view?.leave?.();
    view = next;
    view.arrive?.();
    window.scrollTo(0, 0);
  } else view.moved?.();
  changed();
}

// What every view needs; again after a key was given or the server was away.
async function start() {
  try {
    state.apps = (await get("v1/apps")).apps;
    state.trouble = "";
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return changed();
    state.trouble =
      error instanceof Refused
        ? `The server refuses: ${error.message}`
        : "The server does not answer. Does teola serve still run?";
    return changed();
  }
  view?.leave?.();
  view = VIEWS[state.route.name];
  view.arrive?.();
  changed();
}

drawnBy(drawPage);
document.getElementById("page").replaceChildren();
state.route = parse(location.hash);
view = VIEWS[state.route.name];
addEventListener("hashchange", arrive);
addEventListener("keydown", onKey);
addEventListener("resize", changed);
start();
changed();
