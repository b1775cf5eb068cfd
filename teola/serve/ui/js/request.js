// From what was typed to the body of a request, and back from what a query asked.
import { isEmpty, none } from "./documents.js";
import { kindOf, typed, valueOf } from "./schema.js";

export const PASSES = [
  ["", "as the application has them"],
  ["all", "all passes"],
  ["none", "none: the graph as the template has it"],
];

export const blank = () => ({ texts: {}, params: {}, documents: none(), passes: "", deadline: "" });

// What was typed into an element is wrong.
class Wrong extends Error {
  constructor(message, id) {
    super(message);
    this.id = id;
  }
}

function at(id, read) {
  try {
    return read();
  } catch (failure) {
    throw new Wrong(failure.message, id);
  }
}

// {send, asked}: the request's body, JSON and a form around it where there are files; what it asks, as
// a server would tell it.
export function body(mine) {
  const told = { inputs: {}, overrides: {}, mode: "stream" };
  const { properties, required = [] } = mine.about.inputs;
  let documents = "";
  for (const [name, schema] of Object.entries(properties)) {
    if (kindOf(schema) === "documents") documents = name;
    const value = at(`input-${name}`, () => valueOf(name, schema, mine.texts[name]));
    if (value !== undefined) told.inputs[name] = value;
    else if (required.includes(name)) throw new Wrong(`${name} is needed: write something there`, `input-${name}`);
  }
  for (const [name, schema] of Object.entries(mine.about.parameters.properties)) {
    const value = at(`param-${name}`, () => valueOf(name, schema, mine.params[name]));
    if (value !== undefined) told.overrides[name] = value;
  }
  if (documents && isEmpty(mine.documents) && !told.inputs.collection) {
    throw new Wrong("Add a document, or name a collection under “More”.", `files-${documents}`);
  }
  if (mine.passes) told.passes = mine.passes;
  if (mine.deadline) told.deadline_s = Number(mine.deadline);
  if (mine.documents.pasted.length) told.inputs[documents] = mine.documents.pasted;
  const asked = {
    inputs: told.inputs,
    left_out: mine.documents.files.length ? [documents] : [],
    overrides: told.overrides,
    passes: told.passes ?? null,
  };
  if (!mine.documents.files.length) return { asked, send: JSON.stringify(told) };
  const send = new FormData();
  send.set("request", JSON.stringify(told));
  for (const file of mine.documents.files) send.append(documents, file, file.name);
  return { asked, send };
}

// The form as it was when a query asked that.
export function fill(mine, asked) {
  const passes = PASSES.some(([value]) => value === asked.passes) ? asked.passes : "";
  Object.assign(mine, blank(), { passes });
  for (const [name, schema] of Object.entries(mine.about.inputs.properties)) {
    const value = asked.inputs[name];
    if (value === undefined || value === null) continue;
    if (kindOf(schema) === "documents") mine.documents.pasted = [value].flat();
    else mine.texts[name] = typed(schema, value);
  }
  for (const [name, schema] of Object.entries(mine.about.parameters.properties)) {
    const [component, parameter] = name.split(/\.(.*)/s);
    const value = asked.overrides[name] ?? asked.overrides[component]?.[parameter];
    if (value !== undefined) mine.params[name] = typed(schema, value);
  }
  const { left_out: leftOut } = asked;
  mine.note = leftOut.length ? `Give again: ${leftOut.join(", ")}, which the server did not keep.` : "";
}
