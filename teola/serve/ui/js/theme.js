// Runs before the first paint, so that nobody who chose dark sees a flash of light.
(() => {
  const chosen = localStorage.getItem("teola-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
