// What the page knows, in one object; whoever changes it says so, and the page is drawn once before
// the next frame.

export const state = {
  route: { name: "ask", id: "", query: new URLSearchParams() },
  apps: null, // [{name, description}], null until they are known
  locked: false, // the server wants a key that we do not have
  trouble: "", // why the server cannot be reached
  told: "", // for screen readers
  help: false,
};

let draw = () => {};
let due = false;

export function drawnBy(how) {
  draw = how;
}

export function changed() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    draw();
  });
}

export function say(text) {
  state.told = text;
  changed();
}
