// From an application's JSON Schema to form fields, and from what was typed to JSON.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { live } from "../vendor/lit-html/directives/live.js";
import { shorter } from "./format.js";

const LONG = 60; // a default longer than this gets a field of several lines
const GROWS = ["question", "history"];

// documents, choice, yes, number, texts, text or json: what kind of field a schema asks for.
export function kindOf(schema) {
  const variants = schema.oneOf ?? [];
  if (variants.some((one) => one.required?.includes("text") && one.properties?.name)) {
    return "documents";
  }
  const plain = unwrapped(schema);
  if (plain.enum) return "choice";
  if (plain.type === "boolean") return "yes";
  if (plain.type === "integer" || plain.type === "number") return "number";
  if (plain.type === "array" && plain.items?.type === "string") return "texts";
  return plain.type === "string" ? "text" : "json";
}

// Optional values are `anyOf` a type and null.
function unwrapped(schema) {
  const rest = schema.anyOf?.filter((one) => one.type !== "null");
  return rest?.length === 1 ? { ...schema, ...rest[0] } : schema;
}

// What was typed as a value; undefined if nothing was. Throws an Error for people.
export function valueOf(name, schema, text) {
  if (text === undefined || text.trim() === "") return undefined;
  const kind = kindOf(schema);
  if (kind === "number") return Number(text);
  if (kind === "yes") return text === "true";
  if (kind === "choice") return unwrapped(schema).enum.find((one) => String(one) === text);
  if (kind === "texts") return text.split("\n").filter((line) => line.trim());
  if (kind === "text") return text;
  return asJson(name, schema, text);
}

function asJson(name, schema, text) {
  try {
    return JSON.parse(text);
  } catch {
    if (!schema.type) return text; // anything goes, so a text does
    throw new Error(`${name} must be JSON, such as ${schema.type === "object" ? '{"a": 1}' : "[1]"}`);
  }
}

// A value as one would type it into its field.
export function typed(schema, value) {
  if (kindOf(schema) === "texts" && Array.isArray(value)) return value.join("\n");
  return shown(value);
}

// One field with its label. id: of the element; first: it takes the key "/"; wrong: what is wrong
// with what was typed, if something is; none: what the choice of nothing is called; long: several lines are needed.
export function field({ id, label, schema, text, needed, first, wrong, none, long, onInput }) {
  const kind = kindOf(schema);
  const plain = unwrapped(schema);
  const now = "default" in schema ? shown(schema.default) : "";
  const more = plain.description ? html`<small id="${id}-more">${plain.description}</small>` : nothing;
  const about = [plain.description && `${id}-more`, wrong && `${id}-wrong`].filter(Boolean).join(" ") || nothing;
  const type = (event) => onInput(event.target.value);
  const bad = wrong ? "true" : nothing;
  return html`<div class="field kind-${kind}">
    <label for=${id}>${label}${needed ? html` <span class="needed">needed</span>` : nothing}</label>
    ${input({ id, kind, plain, now, text: text ?? "", needed, first, about, bad, type, label, none, long })} ${more}
    ${complaint(id, wrong)}
  </div>`;
}

// What stands below a field that is wrong.
export const complaint = (id, wrong) =>
  wrong ? html`<p class="error" role="alert" id="${id}-wrong">${wrong}</p>` : nothing;

function input({ id, kind, plain, now, text, needed, first, about, bad, type, label, none, long }) {
  if (kind === "choice" || kind === "yes") {
    const options = kind === "yes" ? ["true", "false"] : plain.enum.map(String);
    return html`<select id=${id} aria-describedby=${about} aria-invalid=${bad} @change=${type}>
      <option value="">${none ?? (now ? `as it is: ${now}` : "as it is")}</option>
      ${options.map((one) => html`<option value=${one} ?selected=${one === text}>${one}</option>`)}
    </select>`;
  }
  if (kind === "number") {
    return html`<input id=${id} type="number" aria-describedby=${about} aria-invalid=${bad} placeholder=${now}
      min=${plain.minimum ?? nothing} max=${plain.maximum ?? nothing}
      step=${plain.type === "integer" ? 1 : "any"} .value=${live(text)} @input=${type}>`;
  }
  const several = long || ["texts", "json"].includes(kind) || now.length > LONG || GROWS.includes(label);
  if (!several) {
    return html`<input id=${id} type="text" autocomplete="off" dir="auto" aria-describedby=${about}
      aria-invalid=${bad} placeholder=${now} ?required=${needed} ?data-first=${first} .value=${live(text)} @input=${type}>`;
  }
  const hint = kind === "texts" ? "one a line" : kind === "json" && !now ? "JSON" : shorter(now, 400);
  return html`<textarea id=${id} rows=${label === "question" ? 3 : 2} dir="auto" aria-describedby=${about}
    aria-invalid=${bad} placeholder=${hint} ?required=${needed} ?data-first=${first} spellcheck=${kind !== "json"}
    .value=${live(text)} @input=${type}></textarea>`;
}

const shown = (value) =>
  value === null || value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);
