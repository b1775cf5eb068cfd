// Help, single-key shortcuts (which can be switched off) and the choice of light or dark.
import { html } from "../vendor/lit-html/lit-html.js";
import { go } from "./router.js";
import { changed, say } from "./store.js";

const SWITCH = "teola-keys-off";

const SHORTCUTS = [
  ["a", "Ask"],
  ["q", "Queries"],
  ["w", "Waiting: what queries ask people"],
  ["e", "Engines"],
  ["/", "To the question, or the filter of the list"],
  ["t", "Light or dark"],
  ["?", "This help"],
  ["Ctrl + Enter", "Send the question"],
  ["Esc", "Close, or let go of a primitive"],
];

const INSIDE = [
  ["← →", "Timeline: the span before, the next one. Graph: beside"],
  ["↑ ↓", "Timeline: the lane above, below. Graph: what it reads, what reads it"],
  ["Home, End", "The first, the last"],
  ["Enter", "Hold on to a primitive: it is in the link then"],
  ["+ − 0", "Closer, further, all of it"],
];

const off = () => localStorage.getItem(SWITCH) === "1";

const table = (rows) => html`<table class="keys">
  <tbody>
    ${rows.map(([key, what]) => html`<tr><th scope="row"><kbd>${key}</kbd></th><td>${what}</td></tr>`)}
  </tbody>
</table>`;

export const help = () => html`<dialog id="help" aria-labelledby="help-title">
  <form method="dialog">
    <h2 id="help-title">Help</h2>
    <p>A query becomes a graph of small operations, its primitives: the p-graph. Passes rewrite it into
      the e-graph, which is what ran. Point at a primitive anywhere, or move to it with the keys, and it
      lights up everywhere; below stands what it was and whom it waited for.</p>
    <h3>Anywhere</h3>
    ${table(SHORTCUTS)}
    <h3>In a graph or the timeline</h3>
    ${table(INSIDE)}
    <label class="check"><input type="checkbox" .checked=${!off()} @change=${toggle}>
      Shortcuts of one letter</label>
    <div class="row"><button class="main">Close</button></div>
  </form>
</dialog>`;

function toggle(event) {
  localStorage.setItem(SWITCH, event.target.checked ? "0" : "1");
}

export function openHelp() {
  document.getElementById("help").showModal();
}

export function setTheme() {
  const { documentElement: root } = document;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme ?? (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem("teola-theme", root.dataset.theme);
  say(`${root.dataset.theme} colours`);
  changed();
}

function toField() {
  const field = document.querySelector("[data-first]");
  if (field) field.focus();
  else go("#/ask");
}

const ACTIONS = {
  a: () => go("#/ask"),
  q: () => go("#/queries"),
  w: () => go("#/waiting"),
  e: () => go("#/engines"),
  t: setTheme,
  "?": openHelp,
  "/": toField,
};

export function onKey(event) {
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || off()) return;
  const action = ACTIONS[event.key];
  if (!action || event.defaultPrevented) return;
  event.preventDefault();
  action();
}
