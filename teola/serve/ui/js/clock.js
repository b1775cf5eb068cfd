// <running-clock>: how long something has been running, counted here between two looks at the
// server. since: when it began, in ms of performance.now().
import { seconds } from "./format.js";

const calm = matchMedia("(prefers-reduced-motion: reduce)");

class RunningClock extends HTMLElement {
  #since = 0;
  #timer = 0;

  set since(ms) {
    this.#since = ms;
    this.#show();
  }

  connectedCallback() {
    this.#timer = setInterval(() => this.#show(), calm.matches ? 1000 : 100);
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
  }

  #show() {
    const s = Math.max(0, performance.now() - this.#since) / 1000;
    this.textContent = s < 100 ? `${s.toFixed(1)} s` : seconds(s);
  }
}

customElements.define("running-clock", RunningClock);
