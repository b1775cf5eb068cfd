// Documents of a question: dropped, chosen, or pasted as text.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { bytes, plural } from "./format.js";
import { complaint } from "./schema.js";
import { changed, say } from "./store.js";

const LARGEST = 50 * 1024 ** 2;
const LOOKED_AT = 64 * 1024; // bytes of a file, to tell whether it is text
const BOMS = ["255,254", "254,255"]; // of UTF-16, which has NUL bytes

// files: File objects. pasted: {name, text}. refused: why files were not taken.
export const none = () => ({ files: [], pasted: [], refused: [], open: false, over: false });

export const isEmpty = (documents) => !documents.files.length && !documents.pasted.length;

// What is wrong with a file, as far as its first bytes say; the server reads the rest.
async function unreadable(file) {
  if (!file.size) return "it is empty";
  if (file.size > LARGEST) return `it has ${bytes(file.size)}, more than ${bytes(LARGEST)}`;
  if (/\.pdf$/i.test(file.name)) return "";
  const head = new Uint8Array(await file.slice(0, LOOKED_AT).arrayBuffer());
  if (BOMS.includes(String(head.slice(0, 2))) || !head.includes(0)) return "";
  return "it is a binary file; give text, Markdown, HTML or PDF";
}

async function add(documents, files) {
  const known = new Set(documents.files.map((file) => file.name + file.size));
  const fresh = [...files].filter((file) => !known.has(file.name + file.size));
  const found = await Promise.all(fresh.map(async (file) => ({ file, why: await unreadable(file) })));
  const taken = found.filter(({ why }) => !why).map(({ file }) => file);
  documents.files.push(...taken);
  documents.refused = found.flatMap(({ file, why }) => (why ? [`${file.name} is left out: ${why}.`] : []));
  say(`${plural(taken.length, "file")} added`);
}

// missing: what is said where none is there and one is needed.
export function drop(name, documents, missing) {
  const over = (is) => (event) => {
    event.preventDefault();
    documents.over = is;
    changed();
  };
  const dropped = (event) => {
    over(false)(event);
    add(documents, event.dataTransfer.files);
  };
  const chosen = (event) => {
    add(documents, [...event.target.files]);
    event.target.value = "";
  };
  const wrong = documents.refused.join(" ") || missing;
  return html`<div class="field">
    <span class="label" id="label-${name}">${name}</span>
    <div class="drop ${documents.over ? "over" : ""}" role="group" aria-labelledby="label-${name}"
      @dragenter=${over(true)} @dragover=${over(true)} @dragleave=${over(false)} @drop=${dropped}>
      <p><label class="button">Choose files<input class="unseen" type="file" multiple
        id="files-${name}" aria-invalid=${wrong ? "true" : nothing}
        aria-describedby=${wrong ? `files-${name}-wrong` : nothing} @change=${chosen}></label>
        <span>or drop them here: PDF, HTML, Markdown, text; at most 50 MiB each</span>
        <button type="button" class="plain" aria-expanded=${documents.open}
          @click=${() => { documents.open = !documents.open; changed(); }}>paste a text</button></p>
      ${list(documents)} ${documents.open ? paste(documents) : nothing}
    </div>
    ${complaint(`files-${name}`, wrong)}
  </div>`;
}

function list(documents) {
  const row = (label, size, from, one) => html`<li><span class="name" dir="auto" title=${label}>${label}</span>
    <small>${bytes(size)}</small>
    <button type="button" class="plain" aria-label="Leave out ${label}" @click=${() => {
      from.splice(from.indexOf(one), 1);
      say(`${label} left out`);
    }}>✕</button></li>`;
  if (isEmpty(documents)) return nothing;
  return html`<ul class="files">
    ${documents.files.map((file) => row(file.name, file.size, documents.files, file))}
    ${documents.pasted.map((one) => row(one.name, one.text.length, documents.pasted, one))}
  </ul>`;
}

function paste(documents) {
  const take = (event) => {
    const box = event.target.closest(".paste").querySelector("textarea");
    const text = box.value.trim();
    if (!text) return box.focus();
    documents.pasted.push({ name: `pasted-${documents.pasted.length + 1}.md`, text });
    box.value = "";
    documents.open = false;
    say("text added");
  };
  return html`<div class="paste">
    <label for="pasted">Text of a document</label>
    <textarea id="pasted" rows="4"></textarea>
    <button type="button" class="button" @click=${take}>Add this text</button>
  </div>`;
}
