// The view is in the URL's fragment, filters and selection included, so that a link opens the same.
//
//   #/ask?app=naive-rag   #/queries?app=&state=&text=   #/queries/ID?at=embed.1
//   #/waiting   #/engines
import { changed, state } from "./store.js";

const VIEWS = ["ask", "queries", "waiting", "engines"];

export function parse(fragment) {
  const [path, query = ""] = fragment.replace(/^#\/?/, "").split("?");
  const [first, id = ""] = path.split("/");
  const name = first === "queries" && id ? "query" : VIEWS.includes(first) ? first : "ask";
  return { name, id, query: new URLSearchParams(query) };
}

export function link(path, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value);
  const text = new URLSearchParams(kept).toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

export const linkTo = (id) => link(`queries/${id}`);

export function go(fragment) {
  if (location.hash === fragment) changed();
  else location.hash = fragment;
}

// Changes a part of the fragment's query in place, without another step in the history.
export function put(name, value) {
  const { query } = state.route;
  if (value) query.set(name, value);
  else query.delete(name);
  const path = location.hash.split("?")[0] || "#/ask";
  const text = query.toString();
  history.replaceState(null, "", `${path}${text ? `?${text}` : ""}`);
  changed();
}
