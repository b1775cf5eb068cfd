// Documents of a question: dropped, chosen, or pasted as text.
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { bytes, plural } from "./format.js";
import { changed, say } from "./store.js";

// files: File objects. pasted: {name, text}.
export const none = () => ({ files: [], pasted: [], open: false, over: false });

export const isEmpty = (documents) => !documents.files.length && !documents.pasted.length;

export function drop(name, documents) {
  const add = (files) => {
    const known = new Set(documents.files.map((file) => file.name + file.size));
    const fresh = [...files].filter((file) => !known.has(file.name + file.size));
    documents.files.push(...fresh);
    say(`${plural(fresh.length, "file")} added`);
  };
  const over = (is) => (event) => {
    event.preventDefault();
    documents.over = is;
    changed();
  };
  const dropped = (event) => {
    over(false)(event);
    add(event.dataTransfer.files);
  };
  const chosen = (event) => {
    add(event.target.files);
    event.target.value = "";
  };
  return html`<div class="field">
    <span class="label" id="label-${name}">${name}</span>
    <div class="drop ${documents.over ? "over" : ""}" role="group" aria-labelledby="label-${name}"
      @dragenter=${over(true)} @dragover=${over(true)} @dragleave=${over(false)} @drop=${dropped}>
      <p><label class="button">Choose files<input class="unseen" type="file" multiple
        id="files-${name}" @change=${chosen}></label>
        <span>or drop them here: PDF, HTML, Markdown, text; at most 50 MiB each</span>
        <button type="button" class="plain" aria-expanded=${documents.open}
          @click=${() => { documents.open = !documents.open; changed(); }}>paste a text</button></p>
      ${list(documents)} ${documents.open ? paste(documents) : nothing}
    </div>
  </div>`;
}

function list(documents) {
  const row = (label, size, from, one) => html`<li><span class="name">${label}</span>
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
