// What waits for people: the questions of all queries, to be answered here.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { get } from "./api.js";
import { asks } from "./asks.js";
import { every } from "./every.js";
import { ago, moment, plural } from "./format.js";
import { linkTo } from "./router.js";
import { changed } from "./store.js";

const EVERY = 3000; // ms
const AFTER_ANSWER = 150; // by then it is known whether it waits for another one
const MOST = 500;

let found = null;
let trouble = "";

async function load() {
  try {
    const { queries } = await get(`v1/queries?state=waiting&limit=${MOST}`);
    found = queries.filter((one) => one.asks).reverse(); // who has waited longest stands at the top
    trouble = "";
  } catch (error) {
    trouble = error.status ? error.message : "The server does not answer; it is asked again soon.";
  }
  changed();
}

const refresh = every(EVERY, load);
const answered = () => setTimeout(refresh.now, AFTER_ANSWER);

function draw() {
  const count = found?.reduce((sum, one) => sum + one.asks.length, 0);
  return html`<div class="head"><div class="row"><h1>Waiting</h1>
      <span class="facts">${count ? plural(count, "question") : ""}</span></div></div>
    ${trouble ? html`<p class="error" role="alert">${trouble}</p>` : nothing}
    ${found ? (found.length ? repeat(found, (one) => one.query_id, card) : empty)
      : html`<p class="wait" role="status">Asking …</p>`}`;
}

const card = (one) => html`<section class="card" aria-labelledby="h-${one.query_id}">
  <h2 id="h-${one.query_id}"><a href=${linkTo(one.query_id)}>${one.app}
      <code>${one.query_id.slice(0, 8)}</code></a>
    <small title=${moment(one.created)}>asked ${ago(one.created)}</small></h2>
  ${asks(one.query_id, one.asks, answered)}
</section>`;

const empty = html`<div class="card empty"><p>No query waits for people.</p></div>`;

export const waiting = {
  draw,
  arrive: refresh.start,
  moved: refresh.now,
  leave: refresh.stop,
};
