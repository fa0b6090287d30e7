// The light or dark theme: the reader's choice, by default the system's. Runs before anything is drawn.
"use strict";
(() => {
  const root = document.documentElement;
  const remembered = () => { try { return localStorage.getItem("kraftlab-theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("kraftlab-theme", theme); } catch { /* from file:// there may be no storage */ } };
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const chosen = remembered();
  if (chosen) root.dataset.theme = chosen;
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
    button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; remember(root.dataset.theme); label(); });
    label();
  });
})();
