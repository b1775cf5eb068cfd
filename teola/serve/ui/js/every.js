// Asks again and again while a view is open and the tab is seen; never twice at once.

export function every(ms, load) {
  let timer = 0;
  let open = false;
  let asked = 0; // what was asked before the last change is asked again at once

  async function turn() {
    clearTimeout(timer);
    const mine = (asked += 1);
    if (!document.hidden) await load();
    if (open && mine === asked) timer = setTimeout(turn, ms);
  }

  return {
    start() {
      open = true;
      turn();
    },
    now: turn,
    stop() {
      open = false;
      clearTimeout(timer);
    },
  };
}
