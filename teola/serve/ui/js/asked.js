// What a query asked: its question, and its other inputs as far as the server keeps them.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { forget } from "./live.js";
import { isTables } from "./tables.js";

const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

export function asked(query) {
  if (!query.asked) return nothing;
  // A query over tables is its SQL, which stands in the place of a question.
  const { query: sql, ...inputs } = query.asked.inputs;
  const given = isTables(query) ? { ...inputs, question: sql } : query.asked.inputs;
  const { question, ...rest } = given;
  const { left_out: leftOut } = query.asked;
  const more = Object.entries(rest);
  return html`${question ? html`<p class="question" dir="auto">${asText(question)}</p>` : nothing}
    <details class="inputs">
      <summary>Inputs <small>${told(more.length + (question ? 1 : 0), leftOut)}</small></summary>
      <dl>${more.map(([name, value]) => html`<dt>${name}</dt>
        <dd><pre dir="auto" tabindex="0" aria-label=${name}>${asText(value)}</pre></dd>`)}</dl>
      <p>The server keeps small inputs with the query, until it ends or forgets the query.
        <button class="plain" @click=${() => forget(query)}>Delete them now</button></p>
    </details>`;
}

function told(n, leftOut) {
  const kept = `${n} kept`;
  return leftOut.length ? `${kept}; ${leftOut.join(", ")} too large, or a file` : kept;
}
